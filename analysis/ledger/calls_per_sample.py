"""Calls that are known to be slow for each sample.

Of several that fit a frame or a line, the first counts. benchmarks/slow_calls has a pair of
programs for each kind, with and without the call. Calls of the loop are in calls_per_step.py.
"""

from feedline.analysis.ledger.known_call import Calls, KnownCall, Sign
from feedline.profiler.masks import PYTHON


def _python(file: str, function: str = ".*") -> Sign:
    return Sign(PYTHON, file, function)


_OPEN = "__init__|__new__|open|make_fid|__enter__|__exit__|close"

#: A part of an array or of bytes: no mask, no key, no new axis, and nothing is assigned to it.
_PART = r"\s*\[(?![^\]\n]*[<>=!'\"])(?=[^\]\n]*\b(?!(None|np|newaxis)\b)\w)[^\]\n]*\](?!\s*=(?!=))"
_UNPACKING = r"(\b(read|get_fdata|get_data|decompress|load)\(|\.dataobj\b)"
#: It takes a part of what it has unpacked, at once or by the name that this was given.
_TAKES_A_PART = (
    r"(\b(read|get_fdata|get_data|decompress|load|asarray|array|frombuffer)"
    rf"\(([^()\n]|\([^()\n]*\))*\)(\.\w+\([^()\n]*\))*|\.dataobj){_PART}"
    rf"|\b(?P<unpacked>\w+)\s*=[^\n]*{_UNPACKING}(?s:.*)\b(?P=unpacked)\b([^\n\[]*\))?{_PART}"
)

#: A path, or a part of one, that is the same for each sample as far as the line shows.
_SAME = r"([A-Z][A-Z0-9_]*|(self|args|cfg|config|opts?)\.\w+|r?(\"[^\"\n]*\"|'[^'\n]*'))"
_SAME_FILE = rf"({_SAME}(\s*/\s*{_SAME})*|(os\.path\.)?join\(\s*{_SAME}(\s*,\s*{_SAME})*\s*\))"

#: Lines are picked by an index that is computed: of a small file, a number picks its header.
_PICKED_LINES = (
    r"(\.readlines\(\)|\.read(_text)?\([^()]*\)(\.\w+\([^()]*\))*"
    r"\.(splitlines\(\)|split\(['\"]\\n['\"]\)))\s*\[[^\]]*[A-Za-z_]"
)

GROWN = KnownCall(
    "grown_by_copying",
    "All that was gathered so far is copied for each piece that is added to it.",
    "Gather the pieces in a list, and join them once, after the loop",
    "https://github.com/ulissigroup/amptorch/issues/12",
    text=r"\b([\w.]+)\s*=\s*(torch|np|numpy)\.(cat|concat\w*|append|[vh]stack)\(\s*[\[(]?\s*\1\s*,",
)
SUMMED = KnownCall(
    "lists_summed",
    "sum() copies all lists that it has joined so far for each further one.",
    "Join lists with itertools.chain.from_iterable",
    "https://github.com/huggingface/transformers/issues/1830",
    text=r"\bsum\((?:[^()]|\([^()]*\))*,\s*(start\s*=\s*)?(\[\]|\(\))\s*\)",
    left=0.06,
)
FRONT = KnownCall(
    "taken_from_the_front",
    "Taking from the front of a list, or adding there, moves all other items.",
    "Use collections.deque, with popleft() and appendleft()",
    "https://github.com/uber/petastorm/pull/414",
    text=r"\.pop\(0\)|\.insert\(0,|\bdel [\w.]+\[0\]",
    left=0.05,
)
FILLED = KnownCall(
    "filled_one_by_one",
    "An array or tensor is filled in a Python loop, value by value.",
    "Use operations on whole arrays, and keep the result if it is always the same",
    "https://github.com/rampasek/GraphGPS/issues/43",
    text=r"^[\w.]+\[[^\]=:]*,[^\]=:]*\]\s*[-+*/]?=\s*[^()=]*$",
    in_loop=True,
    left=0.05,
)
SEARCHED = KnownCall(
    "list_searched",
    "In a list or array, `in` and index() compare one item after another.",
    "Make a set or dict once, before training, and look it up there",
    "https://github.com/stellargraph/stellargraph/issues/70",
    text=r"^(?!.*\bfor\b).*\bin\s+[\w.]+(\[[\w.]+\])?\s*(:|\)|$|\b(and|or|else)\b)|\.index\(",
)
COLLECTED = KnownCall(
    "garbage_collected",
    "gc.collect looks at every object of the program each time.",
    "Remove gc.collect(): Python collects by itself",
    "https://github.com/huggingface/peft/pull/2894",
    text=r"\bgc\.collect\(",
    left=0.01,
)

PER_SAMPLE: Calls = (
    COLLECTED,
    KnownCall(
        "table_read",
        "A whole table is read from its file for each sample.",
        "Read the table once, in __init__, and keep its columns as arrays",
        "https://github.com/mandubian/pytorch_math_dataset/issues/2",
        (Sign("pandas", r"io/.*"), Sign("polars"), Sign("pyarrow", r"(parquet|csv|dataset).*")),
        r"\bpa?q\.read_\w+\(|read_(csv|parquet|feather|table)\(",
        left=0.1,
    ),
    KnownCall(
        "csv_read",
        "A whole CSV file is read in Python for each sample.",
        "Read the CSV file once, in __init__, and keep its rows as arrays",
        "https://github.com/NRCan/geo-deep-learning/issues/418",
        (_python(r"csv\.py"),),
        r"\bcsv\.(Dict)?[Rr]eader\(|np\.(loadtxt|genfromtxt)\(",
        with_loop=True,
    ),
    KnownCall(
        "dates_parsed",
        "Dates are parsed from text in Python, one by one.",
        "Parse all dates once, before training, and keep them as numbers",
        "https://github.com/dateutil/dateutil/issues/125",
        (
            Sign("dateutil"),
            _python(r"_strptime\.py"),
            Sign("pandas", r"core/(tools/(datetimes|times)|arrays/datetimes)\.py"),
        ),
        r"\bstrptime\(|fromisoformat\(",
        left=0.2,
    ),
    KnownCall(
        "pandas_row",
        "Pandas builds a new object for each look-up, and a filter compares whole columns.",
        "Keep the columns as NumPy arrays, and the rows of each key in a dict",
        "https://github.com/pandas-dev/pandas/issues/15123",
        (Sign("pandas", r"core/.*"),),
    ),
    KnownCall(
        "npz_read",
        "Reading an .npz file opens and unpacks an archive each time.",
        "Store arrays as .npy, and open them once with mmap_mode='r'",
        "https://github.com/numpy/numpy/issues/26498",
        (Sign("numpy", r"lib/_?npyio\w*\.py", "__getitem__|__init__|zipfile_factory"),),
        left=0.1,
    ),
    KnownCall(
        "text_array_read",
        "Arrays are parsed from text, value by value.",
        "Convert the text to .npy files once, before training",
        "https://github.com/NRCan/geo-deep-learning/issues/418",
        (Sign("numpy", r"lib/_?npyio\w*\.py", "loadtxt|genfromtxt|_read"),),
    ),
    KnownCall(
        "zip_opened",
        "Opening a zip archive reads its whole directory each time.",
        "Open the archive once per worker, and keep it open",
        "https://github.com/pytorch/vision/pull/950",
        (_python(r"zipfile(/__init__)?\.py", "_RealGetContents|__init__|_EndRecData"),),
        left=0.05,
    ),
    KnownCall(
        "tar_opened",
        "Opening a tar archive and finding a member reads it from its beginning.",
        "Unpack the archive once, or read its members in order",
        "https://github.com/pytorch/vision/issues/947",
        (_python(r"tarfile\.py", "(|gz|bz2|xz|tar)open|_?getmembers?|getnames|_load"),),
    ),
    KnownCall(
        "hdf5_opened",
        "Opening an HDF5 file takes longer than reading a sample of it.",
        "Open the file once per worker, at its first sample",
        "https://github.com/ctlearn-project/ctlearn/issues/2",
        (Sign("h5py", r"_hl/files\.py", _OPEN),),
        r"h5py\.File\(",
        left=0.4,
    ),
    KnownCall(
        "hdf5_iterated",
        "A data set of an HDF5 file is gone through row by row, with a read for each.",
        "Read the data set at once, with dataset[:], before making an array or tensor",
        "https://github.com/pytorch/pytorch/issues/28761",
        (Sign("h5py", r"_hl/dataset\.py", "__iter__|__len__|len"),),
    ),
    KnownCall(
        "chunk_unpacked",
        "HDF5 reads whole chunks to get a part of them, and picks a list of indices one by one.",
        "Store chunks of about one sample, and take slices instead of lists of indices",
        "https://github.com/h5py/h5py/issues/293",
        (Sign("h5py", r"_hl/(dataset|selections|base)\.py"),),
    ),
    KnownCall(
        "zarr_chunk_unpacked",
        "A whole chunk is read and unpacked to get a part of it.",
        "Store chunks of about one sample, or use all samples of a chunk",
        "https://github.com/mani-skill/ManiSkill/pull/1040",
        (Sign("zarr"),),
    ),
    KnownCall(
        "lmdb_opened",
        "An LMDB environment is opened for each sample.",
        "Open the environment once per worker, at its first sample",
        "https://github.com/facebookresearch/fairchem/pull/154",
        (Sign("lmdb", r"_envid\.py"),),
        r"\blmdb\.(open|Environment)\(",
        left=0.2,
    ),
    KnownCall(
        "database_opened",
        "A database connection is opened for each sample.",
        "Connect to the database once per worker, at its first sample",
        "https://github.com/flairNLP/flair/issues/1669",
        text=r"\bsqlite3\.connect\(|\bpsycopg2?\.connect\(|\bduckdb\.connect\(",
    ),
    KnownCall(
        "database_scan",
        "A query runs for each sample; without an index it reads the whole table.",
        "Create an index for the WHERE clause, or select by primary key",
        "https://github.com/metno/pyaerocom/issues/1610",
        text=r"\.execute\(|\.fetch(one|all|many)\(",
        left=0.1,
    ),
    KnownCall(
        "netcdf_read",
        "Xarray builds new objects for each selection, and may open files again.",
        "Open files once per worker, and read variables as NumPy arrays",
        "https://github.com/pydata/xarray/issues/1396",
        (Sign("xarray"), Sign("netCDF4")),
        r"\bnetCDF4\.Dataset\(",
    ),
    KnownCall(
        "volume_unpacked",
        "A compressed file is unpacked from its beginning to get a part of it.",
        "Store the data uncompressed, such as .npy read with mmap_mode='r'",
        "https://github.com/kaiko-ai/eva/pull/705",
        (_python(r"(gzip|_compression|bz2|lzma)\.py"),),
        function=_TAKES_A_PART,
        left=0.1,
    ),
    KnownCall(
        "xml_parsed",
        "An XML file is parsed for each sample.",
        "Parse the annotations once, before training, and keep arrays",
        "https://github.com/open-mmlab/mmdetection/issues/2683",
        (_python(r"xml/.*"), Sign("lxml"), Sign("bs4")),
        left=0.2,
    ),
    KnownCall(
        "json_parsed",
        "A JSON text is parsed for each sample.",
        "Parse the JSON once, in __init__, and keep arrays",
        "https://github.com/open-mmlab/mmdetection/issues/2683",
        (_python(r"json/.*"),),
        r"\b(u|or|simple)json\.loads?\(",
        left=0.1,
    ),
    KnownCall(
        "yaml_parsed",
        "A YAML text is parsed in Python for each sample.",
        "Parse the YAML once, in __init__, and keep what samples need",
        "https://github.com/open-mmlab/mmdetection/issues/2683",
        (Sign("yaml"),),
    ),
    KnownCall(
        "lines_read",
        "A whole text file is read to get some lines of it.",
        "Keep the byte offset of each line, and seek to it",
        "https://github.com/pytorch/text/issues/130",
        (_python(r"linecache\.py"), _python(r"fileinput\.py")),
        _PICKED_LINES,
        with_loop=True,
        left=0.1,
    ),
    KnownCall(
        "file_unpickled",
        "A whole pickled file is loaded for each sample.",
        "Unpickle the file once, in __init__, or store each sample on its own",
        "https://github.com/torchgeo/torchgeo/issues/1754",
        (Sign("joblib"), _python(r"pickle\.py"), Sign("dill"), Sign("cloudpickle")),
        r"\bpickle\.load\(",
        statement=r"^(?!.*\bloads\().*\bload\(",
        function=rf"\b(open|joblib\.load)\(\s*{_SAME_FILE}\s*[,)]|{_SAME_FILE}\.open\(",
        left=0.05,
    ),
    KnownCall(
        "tensors_loaded",
        "torch.load reads a whole file of tensors for each sample.",
        "Load the file of tensors once per worker, with torch.load(..., mmap=True)",
        "https://github.com/pytorch/pytorch/issues/108955",
        (Sign("torch", r"serialization\.py"),),
    ),
    KnownCall(
        "matlab_read",
        "A whole MATLAB file is read for each sample.",
        "Convert the files to .npy once, before training",
        "https://github.com/torchgeo/torchgeo/issues/1754",
        (Sign("scipy", r"io/.*"),),
    ),
    KnownCall(
        "arrow_to_python",
        "Arrow values become Python objects or tensors, one by one.",
        "Read rows in batches, as arrays, and rows first: data[rows][column], not data[column][rows]",
        "https://github.com/huggingface/datasets/issues/2498",
        (Sign("datasets", r"(formatting/.*|arrow_dataset\.py|table\.py)"),),
        r"\.to_pylist\(|\.as_py\(",
    ),
    KnownCall(
        "tokenized",
        "Text is tokenized again each time a sample is used.",
        "Tokenize once before training, or a whole batch at once",
        "https://github.com/marin-community/marin/pull/900",
        (
            Sign("transformers", r"tokenization\w*\.py|models/.*/tokenization\w*\.py"),
            Sign("tokenizers"),
            Sign("nltk"),
            Sign("spacy"),
            Sign("sentencepiece"),
            Sign("tiktoken"),
        ),
        r"\btok(enizer)?\w*(\.\w+)?\(|\.encode(_batch|_plus)?\((?!\)|['\"])",
    ),
    KnownCall(
        "video_opened",
        "Opening a video reads all of it, to find its frames.",
        "Keep readers open in each worker, or use torchcodec with seek_mode='approximate'",
        "https://github.com/meta-pytorch/torchcodec/issues/427",
        (
            Sign("torchcodec", r"decoders/.*", "__init__"),
            Sign("decord", r"video_reader\.py", "__init__"),
        ),
    ),
    KnownCall(
        "video_decoded",
        "PyAV decodes each frame from the last key frame on.",
        "Seek to the key frame before a clip, and take adjacent frames",
        "https://github.com/KempnerInstitute/KempnerForge/issues/171",
        text=r"\.decode\((video|audio)\s*=|\.decode\([\w.]*(stream|video|audio)[\w.]*\)",
    ),
    KnownCall(
        "resampled",
        "Audio is resampled for each sample; lengths with large prime factors take longest.",
        "Resample once before training, or use torchaudio or resample_poly",
        "https://github.com/earthspecies/alp-data/pull/176",
        (
            Sign("scipy", r"signal/.*", "resample.*"),
            Sign("librosa", r"core/audio\.py", "load|resample"),
            Sign("resampy"),
            Sign("torchaudio", r"functional/.*", ".*resample.*"),
        ),
    ),
    KnownCall(
        "resized_in_double",
        "Scikit-image transforms images in 64-bit floats, with spline interpolation.",
        "Use cv2.resize or torchvision's transforms, or do it once before training",
        "https://github.com/mlmed/torchxrayvision/issues/11",
        (Sign("skimage", r"transform/.*"),),
    ),
    KnownCall(
        "interpolated",
        "scipy.ndimage interpolates in 64-bit floats, in one thread.",
        "Pass order=1 if linear interpolation is enough, or use torch's grid_sample for whole batches",
        "https://github.com/MIC-DKFZ/batchgenerators/issues/5",
        (Sign("scipy", r"ndimage/_interpolation\.py"),),
        statement=r"^(?!.*\border\s*=\s*[01]\b)",
    ),
    KnownCall(
        "sparse_row",
        "Taking a row of a sparse matrix builds a new matrix each time.",
        "Take all rows of a batch at once, in __getitems__(indices)",
        "https://github.com/melloddy/SparseChem/pull/1",
        (Sign("scipy", r"sparse/.*"),),
    ),
    KnownCall(
        "spectrogram",
        "A spectrogram is computed on the CPU for each sample.",
        "Compute spectrograms once before training, or for whole batches in the model",
        "https://github.com/awni/speech/issues/7",
        (
            Sign("librosa"),
            Sign("scipy", r"signal/.*", "stft|spectrogram|ShortTimeFFT|istft"),
            Sign("torchaudio", r"(transforms|compliance)/.*"),
        ),
    ),
    KnownCall(
        "deepcopy",
        "copy.deepcopy goes through every object in Python.",
        "Copy only what changes, or keep samples as arrays",
        "https://github.com/facebookresearch/detectron2/issues/939",
        (_python(r"copy\.py"),),
    ),
    KnownCall(
        "folder_listed",
        "A folder is listed for each sample.",
        "List the files once, in __init__",
        "https://github.com/milesial/Pytorch-UNet/issues/449",
        (
            _python(r"(glob|fnmatch)\.py"),
            _python(r"pathlib(/.*)?(\.py)?", "r?glob|iterdir|_select_from|_iterate_directories"),
        ),
        r"\bos\.(listdir|scandir|walk)\(|\bglob\(",
        left=0.05,
    ),
    KnownCall(
        "process_started",
        "A process is started for each sample.",
        "Run the program once before training, or call a library instead",
        "https://github.com/rom1504/any2dataset/pull/7",
        (_python(r"subprocess\.py"), _python(r"multiprocessing/popen.*")),
        r"\bos\.(system|popen)\(",
        left=0.1,
    ),
    KnownCall(
        "fetched",
        "A request is sent over the network for each sample.",
        "Download the data once, or request many samples at once",
        "https://github.com/aniketmaurya/chitra/issues/52",
        (
            Sign("requests"),
            Sign("urllib3"),
            Sign("httpx"),
            Sign("aiohttp"),
            Sign("boto3"),
            Sign("botocore"),
            _python(r"(http/client|urllib/request|socket|ssl)\.py"),
        ),
    ),
    KnownCall(
        "matched",
        "Text is searched by regular expressions each time a sample is used.",
        "Clean the text once, before training, and keep the result",
        "https://github.com/opensupplyhub/open-apparel-registry/issues/2248",
        (_python(r"(re|sre_\w+)(/.*)?(\.py)?"),),
        r"\bre\.(sub|findall|split|match|search|finditer)\(",
    ),
    KnownCall(
        "pixels_one_by_one",
        "Pillow returns or sets pixels one by one, by a call in Python for each.",
        "Make an array of the image, with np.asarray(image), and compute on it",
        "https://github.com/IndustryEssentials/ymir/pull/1337",
        (Sign("PIL", r"Image\.py", "getpixel|putpixel"),),
        r"\.(get|put)pixel\(",
    ),
    KnownCall(
        "called_for_each_value",
        "np.vectorize and np.apply_along_axis call a Python function for each value or row.",
        "Use operations on whole arrays, such as a table of values that is indexed",
        "https://github.com/mnielsen/neural-networks-and-deep-learning/issues/16",
        (Sign("numpy", r"lib/.*", r"_vectorize_call.*|_call_as_normal|apply_(along|over)_ax\w+"),),
    ),
    KnownCall(
        "neighbors_searched",
        "Neighbors or distances are computed again for each sample.",
        "Search neighbors once, before training, and keep the indices",
        "https://github.com/WangYueFt/dcp/issues/6",
        (Sign("scipy", r"spatial/.*"), Sign("sklearn", r"(neighbors|metrics)/.*")),
        r"KDTree\(|\bcdist\(",
    ),
    KnownCall(
        "graph_in_python",
        "NetworkX goes through graphs in Python, node by node.",
        "Compute graphs once, before training, or with scipy.sparse.csgraph",
        "https://github.com/networkx/nx-guides/pull/57",
        (Sign("networkx"),),
    ),
    KnownCall(
        "shared_by_manager",
        "Each access to a Manager's dict or list asks its process, which pickles the value.",
        "Keep arrays that workers inherit, or tensors in shared memory (share_memory_)",
        "https://github.com/luizalabs/shared-memory-dict/issues/10",
        (_python(r"multiprocessing/managers\.py"),),
    ),
    KnownCall(
        "drawn_by_shuffling",
        "All candidates are shuffled to take a few of them.",
        "Draw a few indices with random.sample or randint, and repeat on a clash",
        "https://github.com/guoyang9/NCF/issues/6",
        # weighted ones are not shuffled, and of a part of all, most draws would clash
        text=r"\bnp\.random\.choice\((?!.*\bp\s*=).*replace\s*=\s*False"
        r"|\b(permutation|randperm)\(.*\)\[:(?![^\]]*(\*|/|int\())",
    ),
    KnownCall(
        "chances_summed",
        "All chances are checked and added up again for each draw.",
        "Add up the chances once, with cumsum, and draw with np.searchsorted",
        "https://github.com/neuro-ml/deep_pipe/pull/57",
        # of chances that stay, and with replacement: searchsorted draws so
        text=r"\.choice\((?!.*replace\s*=\s*False).*\bp\s*=\s*(self\.|[A-Z])"
        r"|\brandom\.choices\(.*\bweights\s*=\s*(self\.|[A-Z])"
        r"|\bmultinomial\(\s*(self\.|[A-Z]).*replacement\s*=\s*True",
        left=0.02,
    ),
    KnownCall(
        "shuffled",
        "A list is shuffled in Python for each sample, one swap after another.",
        "Draw what is needed with random.choice or random.sample, or shuffle once per epoch",
        "https://github.com/Georgetown-IR-Lab/cedr/pull/7",
        (_python(r"random\.py", "shuffle"),),
    ),
    KnownCall(
        "drawn_one_by_one",
        "Items are drawn one by one in Python, and in a deque each access walks through blocks.",
        "Keep items in a list or in arrays, and draw all indices in one call",
        "https://github.com/ageron/handson-ml/pull/204",
        (_python(r"random\.py", "sample|choices?"),),
    ),
    KnownCall(
        "list_to_tensor",
        "torch.tensor and np.array copy their data, and read lists value by value.",
        "Keep arrays or tensors instead of lists; torch.from_numpy shares an array's memory",
        "https://github.com/pytorch/pytorch/issues/13918",
        # not of what a library without frames reads meanwhile (netCDF4, rasterio)
        text=r"(\btorch\.(as_)?tensor|\btorch\.\w*Tensor|\bnp\.(as)?array)\((?!.*(\.variables\[|\.read\())",
        left=0.3,
    ),
    FRONT,
    FILLED,
    GROWN,
    SUMMED,
    SEARCHED,
)
