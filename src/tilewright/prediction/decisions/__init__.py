"""What models are for: selecting variants, dispatching calls, and the regret of both."""
