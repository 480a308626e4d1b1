"""Systems with a scheduler or a webhook of their own: several words of a pod make one request."""
