"""Why a schedule is what it is."""
