"""What people call the fields of receipts, invoices, tickets and cards, in Chinese, English and
German, and what their values look like. Data for `extract.py`; no geometry here.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from typing import Literal

Kind = Literal["text", "date", "amount", "code", "company", "address", "total", "pattern"]


@dataclass(frozen=True, slots=True)
class Concept:
    """One field that many documents have. `asked` are names under which it is asked for, `labels`
    those printed on pages (both folded by `fold`); `pattern` finds its value without a label."""

    kind: Kind
    asked: tuple[str, ...]
    labels: tuple[str, ...] = ()
    pattern: re.Pattern[str] | None = None
    which: int = 0  # of several matches of `pattern`, this one


def fold(text: str) -> str:
    """The form in which names are compared: NFKC, lower case, no space, no _ - . or colon."""
    return re.sub(r"[\s_\-.:：#]+", "", unicodedata.normalize("NFKC", text).casefold())


DATE = re.compile(
    r"(?<![\dA-Za-z])(?:\d{4}\s*[-/.年]\s*\d{1,2}\s*[-/.月]\s*\d{1,2}\s*日?"
    r"|[0-3]?\d(?:\s*[-/.]\s*)(?:[0-3]?\d)\s*[-/.]\s*(?:\d{4}|\d{2})(?!\d)"
    r"|\d{1,2}[\s\-./]*(?:jan|feb|mar|mär|apr|may|mai|jun|jul|aug|sep|oct|okt|nov|dec|dez)[a-zä]*"
    r"[\s\-./,]*(?:\d{4}|\d{2})(?!\d)"
    r"|(?:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*\.?\s*\d{1,2}\s*,?\s*\d{4})",
    re.IGNORECASE,
)
AMOUNT = re.compile(
    r"(?<![\d.,/])[-−]?\d{1,3}(?:\.\d{3})+,\d{2}(?!\d)|(?<![\d.,/])[-−]?(?:\d{1,3}(?:[,，]\d{3})+|\d+)\s?[.,]\s?\d{2}(?![\d%]|[.,/]\d)"
    r"|(?<=[¥￥$€£])\s*\d+(?![\d.,])|(?<![A-Za-z\d.,])\d+(?=\s*元)"
)
CODE = re.compile(r"[A-Za-z0-9][A-Za-z0-9\-/_.]*\d[A-Za-z0-9\-/_.]*|\d+")

CONCEPTS: tuple[Concept, ...] = (
    Concept(
        "company",
        tuple(
            "company companyname merchant merchantname store storename shop shopname seller "
            "sellername vendor vendorname issuer supplier restaurant payee 商家 商家名称 店名 商户 "
            "商户名称 公司 公司名称 单位名称".split()
        ),
        ("商户名称", "商家名称", "店名", "公司名称", "单位名称"),
    ),
    Concept(
        "address",
        tuple(
            "address addr storeaddress companyaddress shopaddress 地址 商家地址 公司地址".split()
        ),
        ("地址", "address"),
    ),
    Concept(
        "date",
        tuple(
            "date invoicedate receiptdate billdate issuedate transactiondate purchasedate 日期 "
            "开票日期 交易日期 消费日期 开具日期 时间 rechnungsdatum datum".split()
        ),
        (
            "开票日期",
            "交易日期",
            "消费日期",
            "开具日期",
            "日期",
            "invoicedate",
            "invdate",
            "invdt",
            "billdate",
            "issuedate",
            "dateofissue",
            "rechnungsdatum",
            "datum",
            "date",
        ),
    ),
    Concept(
        "total",
        tuple(
            "total amount totalamount grandtotal amountdue totaldue totalprice invoicetotal sum "
            "总计 合计 总额 总金额 合计金额 应付 实付 实收 价税合计 应付金额 实付金额 金额 "
            "gesamtbetrag".split()
        ),
    ),
    Concept("amount", ("subtotal", "小计"), ("subtotal", "小计", "zwischensumme")),
    Concept(
        "amount",
        ("tax", "gst", "vat", "taxamount", "税额", "税金", "mwst"),
        ("totalgst", "gst", "vat", "税额", "tax", "mwst", "umsatzsteuer"),
    ),
    Concept("amount", ("cash", "现金"), ("cash", "现金")),
    Concept("amount", ("change", "找零"), ("change", "找零")),
    Concept(
        "code",
        tuple(
            "invoicenumber invoiceno invoiceid receiptnumber receiptno receiptid billno billnumber "
            "发票号码 发票号 单号 收据号 小票号 rechnungsnummer".split()
        ),
        (
            "发票号码",
            "发票号",
            "invoicenumber",
            "invoiceno",
            "invno",
            "invoice",
            "receiptno",
            "receiptnumber",
            "receipt",
            "billno",
            "bill",
            "rechnungsnummer",
            "rechnungsnr",
            "单号",
            "收据号",
            "小票号",
            "№",
        ),
    ),
    Concept("code", ("发票代码",), ("发票代码",)),
    Concept("code", ("phone", "tel", "telephone", "电话"), ("电话", "tel", "phone", "telephone")),
    # Chinese railway tickets print their values without labels.
    Concept("pattern", ("车次",), (), re.compile(r"(?<![A-Z0-9])[GDCZTKYLS]\d{1,4}(?!\d)")),
    Concept(
        "pattern",
        ("出发站", "始发站", "发站", "departurestation"),
        (),
        re.compile(r"^[\u4e00-\u9fff]{2,6}(?=\s*站$)"),
    ),
    Concept(
        "pattern",
        ("到达站", "终点站", "到站", "arrivalstation"),
        (),
        re.compile(r"^[\u4e00-\u9fff]{2,6}(?=\s*站$)"),
        which=1,
    ),
    Concept("pattern", ("票价",), (), re.compile(r"(?<=[¥￥])\s*\d+(?:\.\d+)?|\d+\.\d+(?=元)")),
    Concept(
        "pattern",
        ("座位号", "座位", "座号"),
        (),
        re.compile(r"\d{1,2}车\s*\d{1,3}[A-Z]?号(?:[上中下]铺)?"),
    ),
    Concept(
        "pattern",
        ("席别", "座位类型", "座席"),
        (),
        re.compile(
            r"(?:商务|特等|一等|二等|软|硬|新空调软|新空调硬|高级软)[座卧](?:代[座卧软硬二等]+)?|动卧|无座"
        ),
    ),
)

# The legal form at the end of a company's name.
LEGAL_ENDINGS = re.compile(
    r"\b(?:SDN\.?\s*BHD\.?|BHD|S/B|SB|PTE\.?\s*LTD\.?|LTD\.?|LIMITED|INC\.?|LLC|CORP\.?|CO\.|GMBH|AG|"
    r"PLT|PLC|S\.?A\.?R\.?L\.?|B\.V\.)(?![A-Za-z])|(?:有限|股份|责任)?公司|(?:事务所|工作室|经营部)$",
    re.IGNORECASE,
)
ADDRESS = re.compile(
    r"\b(?:LOT|NO\.?\s*\d|JALAN|JLN|TAMAN|TMN|BANDAR|KAWASAN|PERSIARAN|LORONG|LEBUH|UNIT|BLOCK|BLK|"
    r"FLOOR|STREET|ROAD|AVENUE|PLAZA|MALL|CENTRE|SELANGOR|KUALA\s*LUMPUR|JOHOR|PENANG|PERAK|MELAKA|"
    r"KEDAH|PAHANG|MALAYSIA|SINGAPORE|SUITE|DRIVE|LANE|BOULEVARD|STRASSE|STR\.)|\b\d{5}\s+[A-Z]{3,}"
    r"|^\d+[A-Z]?\s*[,，]\s*\S|[省市区县].*[路街道巷号]|\d+号",
    re.IGNORECASE,
)
NOT_ADDRESS = re.compile(
    r"\b(?:TEL|FAX|PHONE|H/?P|GST|SST|VAT|ROC|REG|CO\.?\s*NO|COMPANY\s*NO|INVOICE|INV|RECEIPT|DATE|"
    r"TAX|BILL|TABLE|CASHIER|ATTN|ATTENTION|CUSTOMER|SHIP|E-?MAIL|WWW|HTTPS?|WELCOME|THANK|ORDER|COUNTER|POS|SALES|GUEST)\b"
    r"|CARELINE|@|^\W*[A-Z]{0,3}\d{5,}[-–]?[A-Z]?\W*$|电话|传真|日期|单号|税号|^\W*$",
    re.IGNORECASE,
)
