"""What each graph takes and gives, and what each chip can do, each with one reader."""
