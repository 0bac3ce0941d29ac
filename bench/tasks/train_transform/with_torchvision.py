"""PyTorch's DataLoader with torchvision v2 on Pillow images: what most training scripts do."""
import csv

import torch
from torchvision.datasets.folder import pil_loader
from torchvision.transforms import v2

from bench.measure import adopt_orphans, measure_batches, rival_arguments


class Photos(torch.utils.data.Dataset):
    def __init__(self, path):
        with open(path, newline="") as f:
            self.rows = [(row["path"], int(row["label"])) for row in csv.DictReader(f)]
        self.transform = v2.Compose([
            v2.RandomResizedCrop(224, antialias=True), v2.RandomHorizontalFlip(), v2.ToImage(),
            v2.ToDtype(torch.float32, scale=True), v2.Normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])])

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        path, label = self.rows[index]
        return self.transform(pil_loader(path)), label


if __name__ == "__main__":
    arguments = rival_arguments()
    adopt_orphans()
    torch.set_num_threads(1)
    loader = torch.utils.data.DataLoader(Photos(arguments.list), arguments.batch_size, shuffle=True,
                                         num_workers=arguments.threads, persistent_workers=True)
    measure_batches((images for images, _ in loader), arguments)
