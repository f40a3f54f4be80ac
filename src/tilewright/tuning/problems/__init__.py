"""Search spaces and problems that come with the package."""
