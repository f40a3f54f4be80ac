"""What a person looks at: explanations, tables, plots, loop nests, pictures of pipelines."""
