"""The limited world that the reader is trained on: canvases, fonts, words and how a line is worded.

Everything random comes from the `random.Random` that is passed in, so a seed names a page.
It knows nothing of pixels, tokens or torch.
"""

import random
import string
from dataclasses import dataclass

# Sides in pixels (height, width), multiples of 32.
CANVASES: tuple[tuple[int, int], ...] = ((96, 320), (480, 640))
SIZES: tuple[int, ...] = (20, 22, 24)
# File names inside the font folder that install_fonts.sh fills.
LATIN_FONTS: tuple[str, ...] = ("LiberationSans-Regular.ttf", "DejaVuSans.ttf")
CHINESE_FONT = "wqy-microhei.ttc"
UNSEEN_LATIN_FONTS: tuple[str, ...] = ("Lato-Regular.ttf",)
UNSEEN_CHINESE_FONT = "wqy-zenhei.ttc"

_SURNAMES = "王李张刘陈杨赵黄周吴"
_GIVEN = "伟芳娜敏静丽强军洋艳勇杰涛明超平刚华文玉林海云"
_CITIES = ("北京", "上海", "广州", "深圳", "杭州", "南京", "成都", "武汉", "西安", "天津")
_STREETS = ("中山路", "人民路", "解放路", "建设路", "和平路")
_DEPARTMENTS = ("财务部", "销售部", "人事部", "技术部", "市场部")
_GOODS = ("苹果", "香蕉", "牛奶", "面包", "大米", "鸡蛋", "茶叶", "咖啡", "铅笔", "本子")
_UNITS = "个件箱袋瓶"
_NOTES = ("已付", "未付", "现金", "加急", "自取", "转账")
CHINESE_LABELS: tuple[str, ...] = (
    "姓名", "日期", "金额", "合计", "编号", "电话", "地址", "数量",
    "单价", "备注", "部门", "城市", "商品", "单位", "税额", "时间",
)  # fmt: skip
LATIN_LABELS: tuple[str, ...] = (
    "Name", "Date", "Total", "No", "Phone", "City", "Item", "Qty",
    "Price", "Code", "Tax", "Unit", "Time", "Room", "Seat", "Note",
)  # fmt: skip
_FIRST = (
    "Anna Boris Clara David Emma Frank Grace Henry Irene Jack Karen Leo Maria Nick Olga Peter "
    "Quinn Rosa Simon Tina Victor Wendy Yuri Zoe"
).split()
_LAST = (
    "Adams Brown Clark Davis Evans Fox Green Hill King Lopez Moore Novak Owens Price Reed".split()
)
_TOWNS = "Paris London Berlin Madrid Rome Vienna Oslo Dublin Prague Lisbon Athens Zurich".split()
_ITEMS = "apple bread coffee tea milk pencil paper juice ticket sugar butter cheese".split()
_WORDS = (
    "about above after again all also and any back before best book box buy call card cash city "
    "clean close code cold come date day door down early end enter every exit fast few find first "
    "for free from front fresh full game gate give good green group half hand help here high hold "
    "home hot hour house how item join just keep key kind know large last late left level light "
    "line list local long look lost low main make many mark may meet menu more most move much name "
    "near new next night no now number of off office on one only open order other our out over "
    "page paid park part pay per phone place plan play please point post press price public pull "
    "push quick quiet ready red rest right room safe sale same save seat see send service shop "
    "short show side sign size slow small south staff start station stay stop store street strong "
    "table take tax thank that the their there this time today top total town trade train travel "
    "turn under until upper use value very view visit wait walk warm wash water way week welcome "
    "west what when where white will window with work year yellow you young your zero zone"
).split()
_CODE_ALPHABET = "ABCDEFGHJKLMNPQRSTUVWXYZ23456789"  # no I/1, O/0: as printed codes are made
_PUNCTUATION = ".,:;!?"
_SIGNS = ("#", "%", "&", "+", "-", "/", "$", "¥", "@", "*")

CHINESE_CHARACTERS: str = "".join(
    dict.fromkeys(
        _SURNAMES + _GIVEN + "".join(_CITIES + _STREETS + _DEPARTMENTS + _GOODS + _NOTES)
        + _UNITS + "".join(CHINESE_LABELS) + "年月日号元"
    )
)  # fmt: skip
WIDE_PUNCTUATION = "：¥"
ASCII_CHARACTERS: str = string.digits + string.ascii_letters + " .,:;!?#%&+-/$@*'"
PAGE_CHARACTERS: str = ASCII_CHARACTERS + WIDE_PUNCTUATION + CHINESE_CHARACTERS


@dataclass(frozen=True, slots=True)
class Wording:
    """One line's text; `key` and `value` are set when it is a labelled line."""

    text: str
    key: str = ""
    value: str = ""


def _digits(rng: random.Random, low: int, high: int) -> str:
    return "".join(rng.choices(string.digits, k=rng.randint(low, high)))


def _code(rng: random.Random) -> str:
    body = "".join(rng.choices(_CODE_ALPHABET, k=rng.randint(3, 7)))
    return rng.choice((body, f"{body[:2]}-{_digits(rng, 3, 5)}", f"{body[0]}{_digits(rng, 3, 6)}"))


def _amount(rng: random.Random) -> str:
    return f"{rng.randint(0, 10 ** rng.randint(1, 5) - 1)}.{rng.randint(0, 99):02d}"


def _date(rng: random.Random) -> str:
    year, month, day = rng.randint(1990, 2035), rng.randint(1, 12), rng.randint(1, 28)
    return rng.choice((f"{year}-{month:02d}-{day:02d}", f"{year}/{month:02d}/{day:02d}"))


def _time(rng: random.Random) -> str:
    return f"{rng.randint(0, 23):02d}:{rng.randint(0, 59):02d}"


def _phone(rng: random.Random) -> str:
    return rng.choice((f"1{_digits(rng, 10, 10)}", f"0{_digits(rng, 2, 2)}-{_digits(rng, 7, 8)}"))


def _chinese_value(rng: random.Random, key: str) -> str:
    match key:
        case "姓名":
            return rng.choice(_SURNAMES) + "".join(rng.choices(_GIVEN, k=rng.randint(1, 2)))
        case "日期":
            year, month, day = rng.randint(1990, 2035), rng.randint(1, 12), rng.randint(1, 28)
            return _date(rng) if rng.random() < 0.6 else f"{year}年{month}月{day}日"
        case "金额" | "合计" | "单价" | "税额":
            amount = _amount(rng)
            return rng.choice((f"¥{amount}", amount, f"{amount}元"))
        case "编号":
            return rng.choice((_code(rng), _digits(rng, 4, 10)))
        case "电话":
            return _phone(rng)
        case "地址":
            return (
                rng.choice(_CITIES) * rng.randint(0, 1)
                + rng.choice(_STREETS)
                + (f"{rng.randint(1, 999)}号")
            )
        case "数量":
            return _digits(rng, 1, 4) + rng.choice(_UNITS) * rng.randint(0, 1)
        case "时间":
            return _time(rng)
        case "部门":
            return rng.choice(_DEPARTMENTS)
        case "城市":
            return rng.choice(_CITIES)
        case "商品":
            return rng.choice(_GOODS)
        case "单位":
            return rng.choice(_UNITS)
        case _:
            return rng.choice(_NOTES)


def _latin_value(rng: random.Random, key: str) -> str:
    match key:
        case "Name":
            return f"{rng.choice(_FIRST)} {rng.choice(_LAST)}"
        case "Date":
            return _date(rng)
        case "Total" | "Price" | "Tax":
            return "$" * rng.randint(0, 1) + _amount(rng)
        case "No" | "Room":
            return _digits(rng, 2, 9)
        case "Phone":
            return _phone(rng)
        case "City":
            return rng.choice(_TOWNS)
        case "Item" | "Note":
            return rng.choice(_ITEMS + _WORDS)
        case "Qty" | "Unit":
            return _digits(rng, 1, 4)
        case "Time":
            return _time(rng)
        case "Seat":
            return f"{rng.randint(1, 60)}{rng.choice('ABCDEFGH')}"
        case _:
            return _code(rng)


def word_labelled(rng: random.Random, key: str) -> Wording:
    """A labelled line: `姓名：王芳` (wide colon) or `Name: Rosa Hill`."""
    if key in CHINESE_LABELS:
        value = _chinese_value(rng, key)
        return Wording(f"{key}：{value}", key, value)
    value = _latin_value(rng, key)
    return Wording(f"{key}: {value}", key, value)


def _invented(rng: random.Random) -> str:
    """A pronounceable word that no list holds, so that it has to be read."""
    syllables = rng.randint(1, 3)
    word = "".join(rng.choice("bcdfghjkmnprstvwxz") + rng.choice("aeiou") for _ in range(syllables))
    return word + rng.choice(("", "n", "s", "r", "t", "l"))


def _free_word(rng: random.Random) -> str:
    kind = rng.random()
    if kind < 0.12:
        return _code(rng)
    if kind < 0.24:
        return rng.choice((_digits(rng, 1, 6), _amount(rng), _date(rng), _time(rng)))
    if kind < 0.30:
        return rng.choice(_SIGNS) + _digits(rng, 1, 4)
    if kind < 0.34:
        return _digits(rng, 1, 3) + "%"
    word = _invented(rng) if kind < 0.56 else rng.choice(_WORDS + _ITEMS)
    if kind > 0.97:
        word += "'s"
    case = rng.random()
    return word.upper() if case < 0.15 else word.capitalize() if case < 0.45 else word


def _free_chinese(rng: random.Random) -> str:
    if rng.random() < 0.3:
        return "".join(rng.choices(CHINESE_CHARACTERS, k=rng.randint(1, 4)))
    return rng.choice(_GOODS + _NOTES + _CITIES + _DEPARTMENTS + _STREETS) + (
        _digits(rng, 1, 4) * rng.randint(0, 1)
    )


def word_free(rng: random.Random, words: int) -> Wording:
    """A line of `words` unrelated words with a little punctuation."""
    chinese = rng.random() < 0.4
    parts = []
    for _ in range(words):
        part = _free_chinese(rng) if chinese and rng.random() < 0.8 else _free_word(rng)
        parts.append(part + (rng.choice(_PUNCTUATION) if rng.random() < 0.12 else ""))
    return Wording(" ".join(parts))
