"""headrace.Loader: numpy arrays, in a Python that has no torch."""

import numpy
import pytest

import headrace
import headrace.torch as hr

SMALL = [headrace.Resize((24, 20))]


def test_the_arrays_hold_what_the_tensors_hold(dataset):
    for options in ({}, {"dtype": "float16"}, {"dtype": numpy.uint8}, {"memory_format": "channels_last"}):
        arrays = headrace.Loader(dataset, 16, True, transform=SMALL, return_index=True, **options)
        tensors = hr.DataLoader(dataset, 16, True, transform=SMALL, return_index=True, **options)
        for batch, expected in zip(arrays, tensors, strict=True):
            assert all(isinstance(array, numpy.ndarray) for array in batch)
            for array, tensor in zip(batch, expected):
                assert array.shape == tuple(tensor.shape) and array.dtype == tensor.numpy().dtype
                assert array.strides == tensor.numpy().strides
                assert numpy.array_equal(array, tensor.numpy())


def test_arrays_are_writable_views_and_keep_their_slot(dataset):
    loader = headrace.Loader(dataset, 8, transform=[headrace.Resize((96, 96))])
    expected = [images.copy() for images, _ in loader]
    kept = [images[2:] for images, _ in loader]
    assert all(numpy.array_equal(view, whole[2:]) for view, whole in zip(kept, expected))
    for images, whole in zip((images for images, _ in loader), expected):
        assert images.flags.writeable and not images.flags.owndata
        assert numpy.array_equal(images, whole)
        images -= 0.5
    copied = loader.stats()["copied_batches"]
    assert copied > 5  # of the epoch that was kept
    del kept, images
    assert sum(len(images) for images, _ in loader) == 131
    assert loader.stats()["copied_batches"] == copied  # every slot was given back


def test_bfloat16_is_refused_since_numpy_has_none(dataset):
    with pytest.raises(headrace.InvalidArgumentError, match="bfloat16"):
        headrace.Loader(dataset, 4, transform=SMALL, dtype="bfloat16")


def test_it_works_where_torch_cannot_be_imported(dataset, script):
    run = script(
        """
        import sys

        class NoTorch:
            def find_spec(self, name, path=None, target=None):
                if name.split(".")[0] in ("torch", "torchvision"):
                    raise ModuleNotFoundError(name)

        sys.meta_path.insert(0, NoTorch())
        import headrace
        loader = headrace.Loader(sys.argv[1], 16, shuffle=True, return_index=True,
                                 transform=[headrace.RandomResizedCrop(16), headrace.Normalize()])
        seen = []
        for images, labels, index in loader:
            images -= images.mean()
            seen += index.tolist()
        assert sorted(seen) == list(range(131)), seen
        state = loader.state_dict()
        assert loader.dataset.classes and loader.audit(0) and state["epoch"] == 1
        assert "torch" not in sys.modules
        try:
            import headrace.torch
        except ModuleNotFoundError as error:
            print(error)
        """,
        dataset,
    )
    assert run.finish().strip() == "torch"


def test_the_version_is_the_librarys():
    assert headrace.__version__.count(".") == 2
