// SPDX-License-Identifier: Apache-2.0
/* Shelf: edge. See web_assets.h. The assembler puts the bytes of the files in. */
#include "web_assets.h"

#include <string.h>

#define EMBED(name, file)                                                              \
	__asm__(".section .rodata\n" #name ":\n.incbin \"" file "\"\n" #name "_end:\n" \
		".byte 0\n.previous\n");                                               \
	extern const u8 name[], name##_end[]

EMBED(page_html, "page/index.html");
EMBED(page_js, "page/page.js");
EMBED(page_css, "page/page.css");
EMBED(page_icon, "page/icon.svg");

const struct web_asset *web_asset(const char *path)
{
	static struct web_asset assets[] = {
		{ "/", "text/html; charset=utf-8", page_html, 0 },
		{ "/page.js", "text/javascript; charset=utf-8", page_js, 0 },
		{ "/page.css", "text/css; charset=utf-8", page_css, 0 },
		{ "/icon.svg", "image/svg+xml", page_icon, 0 },
	};
	static const u8 *const ends[] = { page_html_end, page_js_end, page_css_end, page_icon_end };
	u32 i;

	for (i = 0; i < ARRAY_SIZE(assets); i++) {
		if (strcmp(assets[i].path, path))
			continue;
		assets[i].len = (size_t)(ends[i] - assets[i].data);
		return &assets[i];
	}
	return NULL;
}
