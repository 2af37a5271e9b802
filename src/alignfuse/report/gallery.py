"""Some pictures of a data set with a caption each."""

from collections.abc import Iterable

from alignfuse.data.records import ImageSource
from alignfuse.report.markup import Content, tag
from alignfuse.report.page import Section
from alignfuse.report.picture import picture


def gallery_section(title: str, pictures: Iterable[tuple[ImageSource, str]], *, lead: Content = "") -> Section:
    """Pictures side by side, each with its caption below."""
    shown = [picture(image, caption, note=caption) for image, caption in pictures]
    return Section(title, lead, tag("div", *shown, class_="gallery"))
