"""`loader.dataset`: what a dataset holds, and single samples as they were packed."""

import operator
import os

from headrace import _library, errors


class Dataset:
    """A packed dataset as its daemon sees it.

    len(dataset)            number of samples
    dataset[i]              (bytes of the image's file, label or None)
    dataset.classes         class names, the label is the index; [] without class names
    dataset.class_to_idx    {name: label}
    dataset.fields          names of the fields; dataset.kinds[name] is "image", "int64", "float64" or "text"
    dataset.path, dataset.hash
    """

    def __init__(self, link):
        description, self._link = link.description, link
        self.path, self.hash = description["path"], description["hash"]
        self.fields = [field["name"] for field in description["fields"]]
        self.kinds = {field["name"]: field["kind"] for field in description["fields"]}
        self.classes = list(description.get("classes") or [])
        self.class_to_idx = {name: label for label, name in enumerate(self.classes)}
        self.order_version = description["order_version"]
        self.pixel_version = description["pixel_version"]
        self._size = description["size"]

    def __len__(self):
        return self._size

    def __getitem__(self, index):
        image, values = self.sample(index)
        return image, values.get("label")

    def __iter__(self):
        return (self[index] for index in range(len(self)))

    def sample(self, index):
        """(bytes of the image's file, {field: value} of the other fields)."""
        number = operator.index(index)
        number += len(self) if number < 0 else 0
        if not 0 <= number < len(self):
            raise IndexError(f"sample {index} of a dataset of {len(self)}")
        request = {"dataset": self.path, "sample": number}
        answer, descriptor = self._link.request(_library.SAMPLE, request, with_descriptor=True)
        if descriptor < 0:
            raise errors.DaemonError(f"the daemon sent no image for sample {number} of {self.path}")
        with open(descriptor, "rb") as file:  # closes it
            image = os.pread(file.fileno(), answer["image_bytes"], 0)
        if len(image) != answer["image_bytes"]:
            raise errors.DaemonError(f"sample {number} of {self.path}: {len(image)} of {answer['image_bytes']} bytes came")
        return image, answer["values"]

    def __repr__(self):
        return f"Dataset({self.path!r}, {len(self)} samples, fields {', '.join(self.fields)})"
