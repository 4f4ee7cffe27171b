"""Credentials of object stores, from the variables and files that Amazon's and Google's own tools read."""

from __future__ import annotations

import configparser
from collections.abc import Mapping
from pathlib import Path

NO_CREDENTIALS = (
    "For s3:// set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (or AWS_PROFILE), and AWS_REGION; AWS_SKIP_SIGNATURE=true reads public "
    "buckets. For gs:// set GOOGLE_APPLICATION_CREDENTIALS, or run `gcloud auth application-default login`"
)

_OTHER_SOURCES = ("AWS_ACCESS_KEY_ID", "AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "AWS_SKIP_SIGNATURE")
_PROFILE_FIELDS = {
    "aws_access_key_id": "access_key_id",
    "aws_secret_access_key": "secret_access_key",
    "aws_session_token": "session_token",
    "region": "region",
    "endpoint_url": "endpoint",
}


def s3_settings(environment: Mapping[str, str]) -> dict[str, str]:
    """Settings that obstore does not find itself: the profile in ~/.aws, where the environment has no other credentials.

    obstore itself reads AWS_* variables, web identity, and the role of the machine or container.
    """
    if any(name in environment for name in _OTHER_SOURCES) and "AWS_PROFILE" not in environment:
        return {}
    profile = environment.get("AWS_PROFILE", "default")
    home = Path(environment.get("HOME", "~")).expanduser()
    parser = configparser.ConfigParser(interpolation=None)
    parser.read(Path(environment.get("AWS_SHARED_CREDENTIALS_FILE", home / ".aws/credentials")))
    settings = _fields(parser, profile)
    parser = configparser.ConfigParser(interpolation=None)
    parser.read(Path(environment.get("AWS_CONFIG_FILE", home / ".aws/config")))
    settings = _fields(parser, profile if profile == "default" else f"profile {profile}") | settings
    if "AWS_ENDPOINT_URL" in environment:
        settings.pop("endpoint", None)
    if "AWS_REGION" in environment:
        settings.pop("region", None)
    return settings


def _fields(parser: configparser.ConfigParser, section: str) -> dict[str, str]:
    if not parser.has_section(section):
        return {}
    return {ours: parser[section][theirs] for theirs, ours in _PROFILE_FIELDS.items() if theirs in parser[section]}
