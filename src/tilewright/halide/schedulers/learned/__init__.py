"""The learned scheduler for CPUs: beam search over complete schedules with a learned model."""
