"""Who may have how much, what goes beside what, and who has to go for whom."""
