"""Who may have how much, and who has to go for whom."""
