"""The optional compiled loop of small problems on a CPU; without a compiler the library uses torch for them too."""

from pathlib import Path

from setuptools import Extension, setup

FOLDER = Path("src/ugw/kernels/cpu")

setup(
    ext_modules=[
        Extension(
            "ugw.kernels.cpu._alternating",
            sources=sorted(str(path) for path in FOLDER.glob("*.cpp")),
            depends=sorted(str(path) for path in FOLDER.glob("*.hpp")),
            # Floating-point exceptions and errno are not read; infinities and NaN are.
            extra_compile_args=[
                "-std=c++17",
                "-O3",
                "-fno-math-errno",
                "-fno-trapping-math",
                "-ffp-contract=fast",
                "-fvisibility=hidden",
                "-pthread",
                "-Wno-psabi",
                "-g0",
            ],
            extra_link_args=["-pthread"],
            language="c++",
            optional=True,
        )
    ]
)
