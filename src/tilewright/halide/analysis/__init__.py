"""What an algorithm computes and what a schedule makes of it: bounds, inlining, loop nests."""
