"""The campaign that runs where a GPU is at hand; `campaign.py` is its command."""
