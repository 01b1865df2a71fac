"""Files, checksums and mirrors of the published datasets."""

from cadis.data.published.formats import (
    FileFormat,
    PublishedDataset,
    make_cifar_binary_reader,
    make_cifar_python_reader,
    make_idx_format,
    number_files,
)
from cadis.data.samples import Scaling

MNIST = PublishedDataset(
    name="mnist",
    classes=tuple("0123456789"),
    scaling=Scaling((0.1307,), (0.3081,)),
    formats=(
        make_idx_format(
            folders=("mnist", "MNIST/raw", "."),
            train_images="ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
            train_labels="65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
            test_images="0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
            test_labels="ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
        ),
    ),
    mirrors=(
        "https://ossci-datasets.s3.amazonaws.com/mnist",
        "https://storage.googleapis.com/cvdf-datasets/mnist",
    ),
)

FASHION_MNIST = PublishedDataset(
    name="fashion-mnist",
    classes=(
        *("T-shirt", "trouser", "pullover", "dress", "coat"),
        *("sandal", "shirt", "sneaker", "bag", "ankle boot"),
    ),
    scaling=Scaling((0.2860,), (0.3530,)),
    formats=(
        make_idx_format(
            folders=("fashion-mnist", "FashionMNIST/raw", "."),
            train_images="c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
            train_labels="bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
            test_images="5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
            test_labels="0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
        ),
    ),
    mirrors=(
        "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com",
        "https://github.com/zalandoresearch/fashion-mnist/raw/master/data/fashion",
    ),
)

CIFAR10 = PublishedDataset(
    name="cifar10",
    classes=(
        *("airplane", "automobile", "bird", "cat", "deer"),
        *("dog", "frog", "horse", "ship", "truck"),
    ),
    scaling=Scaling((0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)),
    formats=(
        FileFormat(
            ("cifar-10-batches-bin", "cifar10/cifar-10-batches-bin", "."),
            number_files(
                "data_batch_{}.bin",
                "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5",
                "a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed",
                "bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67",
                "014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48",
                "755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add",
            ),
            {"test_batch.bin": "8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b"},
            make_cifar_binary_reader(label_bytes=1),
        ),
        FileFormat(
            ("cifar-10-batches-py", "cifar10/cifar-10-batches-py", "."),
            number_files(
                "data_batch_{}",
                "c99cafc152244af753f735de768cd75f",
                "d4bba439e000b95fd0a9bffe97cbabec",
                "54ebc095f3ab1f0389bbae665268c751",
                "634d18415352ddfa80567beed471001a",
                "482c414d41f54cd18b22e5b47cb7c3cb",
            ),
            {"test_batch": "40351d587109b95175f43aff81a1287e"},
            make_cifar_python_reader("labels"),
            is_pickle=True,
        ),
    ),
    archive="cifar-10-binary.tar.gz",
    mirrors=(
        "https://www.cs.toronto.edu/~kriz",
        "https://storage.googleapis.com/s4tf-hosted-binaries/datasets/CIFAR10",
    ),
)

_CIFAR100_CLASSES = """
apple aquarium_fish baby bear beaver bed bee beetle bicycle bottle bowl boy bridge
bus butterfly camel can castle caterpillar cattle chair chimpanzee clock cloud
cockroach couch crab crocodile cup dinosaur dolphin elephant flatfish forest fox
girl hamster house kangaroo keyboard lamp lawn_mower leopard lion lizard lobster man
maple_tree motorcycle mountain mouse mushroom oak_tree orange orchid otter palm_tree
pear pickup_truck pine_tree plain plate poppy porcupine possum rabbit raccoon ray
road rocket rose sea seal shark shrew skunk skyscraper snail snake spider squirrel
streetcar sunflower sweet_pepper table tank telephone television tiger tractor train
trout tulip turtle wardrobe whale willow_tree wolf woman worm
"""

CIFAR100 = PublishedDataset(
    name="cifar100",
    classes=tuple(_CIFAR100_CLASSES.split()),
    scaling=Scaling((0.5071, 0.4865, 0.4409), (0.2673, 0.2564, 0.2762)),
    formats=(
        FileFormat(
            ("cifar-100-binary", "cifar100/cifar-100-binary", "."),
            {"train.bin": "f31298fc616915fa142368359df1c4ca2ae984d6915ca468b998a5ec6aeebf29"},
            {"test.bin": "d8b1e6b7b3bee4020055f0699b111f60b1af1e262aeb93a0b659061746f8224a"},
            make_cifar_binary_reader(label_bytes=2),
        ),
        FileFormat(
            ("cifar-100-python", "cifar100/cifar-100-python", "."),
            {"train": "16019d7e3df5f24257cddd939b257f8d"},
            {"test": "f0ef6b0ae62326f3e7ffdfab6717acfc"},
            make_cifar_python_reader("fine_labels"),
            is_pickle=True,
        ),
    ),
    archive="cifar-100-binary.tar.gz",
    mirrors=("https://www.cs.toronto.edu/~kriz",),
)

CATALOGUE = {entry.name: entry for entry in (MNIST, FASHION_MNIST, CIFAR10, CIFAR100)}
