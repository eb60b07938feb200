"""REST API, OpenAPI, metrics and health over HTTP."""
