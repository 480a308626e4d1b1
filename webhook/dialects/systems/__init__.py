"""Systems with a scheduler or a webhook of their own: several keys of a pod make one request."""
