"""Decisions by models: selecting variants, dispatching calls, and the regret of both."""
