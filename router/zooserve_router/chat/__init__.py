"""Chat: what a request wants (`generation`), what that takes (`ask`), and the answer as it comes (`service`)."""
