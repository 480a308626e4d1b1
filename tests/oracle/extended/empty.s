// Package main calls a function by its linker name, which the compiler takes without a body only beside an assembly file.
