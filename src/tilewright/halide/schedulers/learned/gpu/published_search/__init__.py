"""The search of Anderson 2021 as published, by the released network."""
