"""Authenticates callers by client certificate or static token (`callers`), or by ServiceAccount token (`token_review`)."""

from serving.authentication.callers import Callers, Credentials, client_ca_flag, client_names_flag, token_file_flag
from serving.authentication.token_review import Account, TokenReviews, TooManyTokens

__all__ = [
    "Account",
    "Callers",
    "Credentials",
    "TokenReviews",
    "TooManyTokens",
    "client_ca_flag",
    "client_names_flag",
    "token_file_flag",
]
