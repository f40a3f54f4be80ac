"""HTML pages made of charts, tables and text."""
