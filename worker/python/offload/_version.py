"""The version of this package, which is that of the whole project."""

VERSION = "0.6.0"
