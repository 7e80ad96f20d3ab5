"""Fields by geometry: receipts, invoices, cards and tickets, drawn as rows of lines."""

from __future__ import annotations

import pytest

from host_pipeline.extract import extract_fields
from host_pipeline.parse import field_specs
from host_pipeline.result import Field, Line, rectangle


def _rows(*rows: str) -> list[list[Line]]:
    """`a | b` is two lines of one row, 400 px apart; rows are 30 px apart, letters 10 px wide."""
    page = []
    for r, text in enumerate(rows):
        cells = enumerate(text.split(" | "))
        page.append(
            [
                Line(t, rectangle(400 * c, 30 * r, 400 * c + 10 * len(t), 30 * r + 20), 0.98)
                for c, t in cells
                if t
            ]
        )
    return page


def _values(rows: list[list[Line]], *keys: str) -> dict[str, object]:
    return {f.name: f.value for f in extract_fields(rows, field_specs(keys))[0]}


RECEIPT = _rows(
    "BLUE HARBOUR SDN BHD (123456-X)",
    "12, JALAN MELATI 3,",
    "TAMAN INDAH, 81200 JOHOR BAHRU",
    "TEL: 07-123 4567",
    "INVOICE NO: BH-00871 | DATE: 14/03/2019 18:22",
    "COFFEE | 12.40",
    "SUB-TOTAL | 12.40",
    "ROUNDING | -0.02",
    "TOTAL | 12.38",
    "CASH | 20.00",
    "CHANGE | 7.62",
)


def test_a_receipt() -> None:
    assert _values(RECEIPT, "company", "address", "date", "total", "invoice_number") == {
        "company": "BLUE HARBOUR SDN BHD",
        "address": "12, JALAN MELATI 3, TAMAN INDAH, 81200 JOHOR BAHRU",
        "date": "14/03/2019",
        "total": "12.38",
        "invoice_number": "BH-00871",
    }


def test_a_field_says_where_and_how_surely_it_was_read() -> None:
    (total,), _ = extract_fields(RECEIPT, field_specs(["total"]))
    assert total.quad == rectangle(400, 240, 450, 260)
    assert total.raw == "12.38" and 0.5 < (total.score or 0) <= 0.98
    (address,), _ = extract_fields(RECEIPT, field_specs(["address"]))
    assert address.quad == rectangle(0, 30, 300, 80)


@pytest.mark.parametrize(
    ("rows", "total"),
    [
        (("TOTAL | 33.92", "ROUNDING ADJ | -0.02", "TOTAL ROUNDED | 33.90"), "33.90"),
        (("TOTAL QTY | 3.00", "GRAND TOTAL | RM39.00"), "39.00"),
        (("TOTAL (EXCLUDING GST) | 50.00", "TOTAL (INCLUSIVE OF GST) | 53.00"), "53.00"),
        (("TOTAL | 60.00", "TOTAL SALES | 53.00", "CASH | 60.00", "CHANGE | 7.00"), "53.00"),
        (("Summe EUR | 1.234,50",), "1234.50"),
        (("合计 | ￥128.00",), "128.00"),
    ],
)
def test_the_total_is_what_is_paid(rows: tuple[str, ...], total: str) -> None:
    assert _values(_rows(*rows), "total") == {"total": total}


def test_a_chinese_invoice() -> None:
    rows = _rows(
        "发票代码：033001900111 | 发票号码：48276519",
        "开票日期：2024年03月18日",
        "购买方 | 名称：杭州青禾网络科技有限公司",
        "货物名称 | 金额 | 税额",
        "打印纸 | ￥700.00 | ￥89.40",
        "合计 | ￥700.00 | ￥89.40",
        "价税合计（大写） | 柒佰捌拾玖圆肆角 | （小写）￥789.40",
        "销售方 | 名称：宁波海澜办公用品有限公司",
    )
    wanted = {
        "发票代码": "033001900111",
        "发票号码": "48276519",
        "开票日期": "2024年03月18日",
        "购买方名称": "杭州青禾网络科技有限公司",
        "销售方名称": "宁波海澜办公用品有限公司",
        "价税合计": "789.40",
        "合计税额": "89.40",
    }
    assert _values(rows, *wanted) == wanted


def test_a_railway_ticket_prints_no_labels() -> None:
    rows = _rows(
        "K051971",
        "南丰站 | D6502 | 南昌站",
        "2018年04月19日 10:51开 | 07车12B号",
        "￥53.0元 | 二等座",
    )
    wanted = {
        "车次": "D6502",
        "出发站": "南丰",
        "到达站": "南昌",
        "票价": "53.0",
        "座位号": "07车12B号",
        "席别": "二等座",
    }
    assert _values(rows, *wanted) == wanted


def test_a_card_with_spaced_labels_and_a_wrapped_address() -> None:
    rows = _rows(
        "名 称 | 成都山石智能制造有限公司",
        "住 所 | 成都市高新区天府大道",
        " | 北段100号",
        "法定代表人 | 陈一鸣",
    )
    wanted = {
        "名称": "成都山石智能制造有限公司",
        "住所": "成都市高新区天府大道北段100号",
        "法定代表人": "陈一鸣",
    }
    assert _values(rows, *wanted) == wanted


def test_what_is_not_there_is_null_and_not_invented() -> None:
    fields, notices = extract_fields(RECEIPT, field_specs(["passport number", "席别"]))
    assert fields == (Field("passport number"), Field("席别")) and notices == []


def test_a_schema_types_the_values() -> None:
    schema = {
        "type": "object",
        "properties": {"total": {"type": "number"}, "date": {"type": "string"}},
    }
    fields, _ = extract_fields(RECEIPT, field_specs(schema))
    assert [f.value for f in fields] == [12.38, "14/03/2019"]
