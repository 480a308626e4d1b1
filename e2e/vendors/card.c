/* What a container sees of its GPUs: one line for each, with its UUID, its memory in bytes and its name.

   The CUDA driver's library is opened at run time, as programs for CUDA do. Each GPU fills a buffer of its memory, which is
   read back. The container goes on until it is ended, and holds its GPUs meanwhile. */

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define WORDS 262144
#define PATTERN 0x5eed5eed

typedef int Device;
typedef void *Context;
typedef unsigned long long Pointer;

static void *library;

static void *symbol(const char *name) {
    void *found = dlsym(library, name);
    if (!found) {
        printf("libcuda.so.1 lacks %s\n", name);
        exit(1);
    }
    return found;
}

static void check(int result, const char *call) {
    if (result) {
        printf("%s returned %d\n", call, result);
        exit(1);
    }
}

#define CALL(name, types, ...) check(((int (*) types)symbol(#name))(__VA_ARGS__), #name)

static void show(Device device) {
    unsigned char uuid[16];
    char name[128];
    size_t memory;
    Context context;
    Pointer buffer;
    static unsigned int words[WORDS];

    CALL(cuDeviceGetUuid, (unsigned char *, Device), uuid, device);
    CALL(cuDeviceGetName, (char *, int, Device), name, sizeof name, device);
    CALL(cuDeviceTotalMem_v2, (size_t *, Device), &memory, device);
    CALL(cuDevicePrimaryCtxRetain, (Context *, Device), &context, device);
    CALL(cuCtxSetCurrent, (Context), context);
    CALL(cuMemAlloc_v2, (Pointer *, size_t), &buffer, sizeof words);
    CALL(cuMemsetD32_v2, (Pointer, unsigned int, size_t), buffer, PATTERN, WORDS);
    CALL(cuMemcpyDtoH_v2, (void *, Pointer, size_t), words, buffer, sizeof words);
    for (size_t at = 0; at < WORDS; at++)
        check(words[at] != PATTERN, "reading the memory back");

    printf("GPU-");
    for (int at = 0; at < 16; at++)
        printf("%s%02x", at == 4 || at == 6 || at == 8 || at == 10 ? "-" : "", uuid[at]);
    printf(" %zu %s\n", memory, name);
}

int main(void) {
    int count;

    setvbuf(stdout, NULL, _IOLBF, 0);
    library = dlopen("libcuda.so.1", RTLD_NOW);
    if (!library) {
        printf("%s\n", dlerror());
        return 1;
    }
    CALL(cuInit, (unsigned int), 0);
    CALL(cuDeviceGetCount, (int *), &count);
    for (Device device = 0; device < count; device++)
        show(device);
    printf("spoken=yes\n");
    pause();
    return 0;
}
