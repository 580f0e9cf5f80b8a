"""What a backend's author tests with: the contract, fakes, and liars.

`isobox.testing.contract` holds the contract suite, `isobox.testing.fake` an
in-memory backend that keeps it, `isobox.testing.liars` sandboxes that do not.
Needs the extra `testing`.
"""
