"""Fixtures that every file uses."""

import pytest


@pytest.fixture(params=["shm", "tcp"])
def transport(request):
    return request.param


@pytest.fixture(params=[1, 2, 3, 4])
def size(request):
    return request.param
