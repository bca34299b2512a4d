// SPDX-License-Identifier: Apache-2.0
/*
 * Shelf: line. See view.h. A finished view as folded lines, as an indented tree for terminals and
 * as a picture. Names were cleaned when the view took them in; what a format gives a meaning of
 * its own is replaced here.
 */
#include "view.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

static const char *name_of(const struct view *v, u32 node)
{
	u32 s = v->tree.nodes[node].symbol;

	return s == VIEW_NONE ? "all" : v->symbols[s].name;
}

static int stream_end(FILE *out)
{
	return fflush(out) || ferror(out) ? -EIO : 0;
}

void view_amount(const struct view *v, u64 value, char *dst, size_t size)
{
	static const struct {
		double ns;
		const char *unit;
	} units[] = {
		{ 3600e9, "h" }, { 60e9, "min" }, { 1e9, "s" }, { 1e6, "ms" }, { 1e3, "us" }
	};
	double n = (double)value;
	size_t i;

	if (strcmp(v->unit, "nanoseconds")) {
		snprintf(dst, size, "%" PRIu64, value);
		return;
	}
	for (i = 0; i < ARRAY_SIZE(units); i++)
		/* 119 s rather than 1.98 min. */
		if (n >= units[i].ns * (i < 2 ? 2 : 1)) {
			snprintf(dst, size, "%.3g %s", n / units[i].ns, units[i].unit);
			return;
		}
	snprintf(dst, size, "%" PRIu64 " ns", value);
}

/* --- folded ----------------------------------------------------------------------------------- */

static void folded_name(const char *s, FILE *out)
{
	for (; *s; s++)
		putc(*s == ';' ? ':' : *s, out);
}

int view_write_folded(const struct view *v, u32 side, FILE *out)
{
	const struct view_node *nodes = v->tree.nodes;
	u32 path[VIEW_DEPTH_MAX + 1], i, n, at;
	const char *suffix;

	for (i = 1; i < v->tree.n; i++) {
		if (!nodes[i].self[side])
			continue;
		for (n = 0, at = i; at && n <= VIEW_DEPTH_MAX; at = nodes[at].parent)
			path[n++] = at;
		while (n--) {
			suffix = v->symbols[nodes[path[n]].symbol].kind == VIEW_KERNEL ? "_[k]"
										       : "";
			folded_name(name_of(v, path[n]), out);
			fprintf(out, "%s%s", suffix, n ? ";" : "");
		}
		fprintf(out, " %" PRIu64 "\n", nodes[i].self[side]);
	}
	return stream_end(out);
}

/* --- text ------------------------------------------------------------------------------------- */

struct text {
	const struct view *v;
	const struct view_text_options *o;
	FILE *out;
	u64 all, least;
	u32 lines;
};

static void print_shares(const struct text *t, const struct view_node *n)
{
	double total = (double)view_weight(n), self = (double)n->self[0] + (double)n->self[1];

	fprintf(t->out, "%6.1f%% ", 100 * total / (double)t->all);
	if (self * 1000 >= (double)t->all)
		fprintf(t->out, "%6.1f%%  ", 100 * self / (double)t->all);
	else
		fputs("         ", t->out);
}

/* The only child that is shown, if it has all of its parent's weight; VIEW_NONE: there is none. */
static u32 only_child(const struct text *t, u32 at)
{
	const struct view_node *n = &t->v->tree.nodes[at];

	if (n->first == VIEW_NONE || view_weight(&t->v->tree.nodes[n->first]) != view_weight(n))
		return VIEW_NONE;
	return n->first;
}

/* One line: a function, and those behind it as long as there is no choice. Returns the last. */
static u32 print_chain(struct text *t, u32 at, u32 depth)
{
	u32 width = 8 + MIN(depth, 40u), next, last = at;
	const struct view_symbol *s;

	for (next = at; next != VIEW_NONE; next = only_child(t, next))
		last = next;
	print_shares(t, &t->v->tree.nodes[last]);
	fprintf(t->out, "%*s", (int)MIN(depth, 40u), "");
	for (next = at;; next = only_child(t, next)) {
		s = &t->v->symbols[t->v->tree.nodes[next].symbol];
		if (next != at) {
			/* Long chains go on below. */
			if (width + strlen(s->name) > 100) {
				fprintf(t->out, "\n%17s%*s> ", "", (int)MIN(depth, 40u), "");
				width = 10 + MIN(depth, 40u);
				t->lines++;
			} else {
				fputs(" > ", t->out);
			}
		}
		width += (u32)strlen(s->name) + 3;
		fprintf(t->out, "%s%s", s->name, s->kind == VIEW_KERNEL ? " [k]" : "");
		if (s->kind == VIEW_RUNTIME && *s->group)
			fprintf(t->out, " (%s)", s->group);
		if (next == last)
			break;
	}
	putc('\n', t->out);
	t->lines++;
	return last;
}

static void print_left_out(struct text *t, u64 weight, u32 n, u32 depth)
{
	if (!n)
		return;
	fprintf(t->out, "%6.1f%%          %*s(%u more)\n", 100 * (double)weight / (double)t->all,
		(int)MIN(depth, 40u), "", n);
	t->lines++;
}

/* Depth is bounded by VIEW_DEPTH_MAX, which no stack of frames of ours minds. */
static void print_children(struct text *t, u32 at, u32 depth)
{
	const struct view_node *nodes = t->v->tree.nodes;
	u64 left = 0;
	u32 nleft = 0, c;

	for (c = nodes[at].first; c != VIEW_NONE; c = nodes[c].next) {
		if (view_weight(&nodes[c]) < t->least || t->lines >= t->o->max_lines ||
		    depth >= t->o->max_depth) {
			left += view_weight(&nodes[c]);
			nleft++;
			continue;
		}
		print_children(t, print_chain(t, c, depth), depth + 1);
	}
	/* In sum they may be worth a line, though none of them is. */
	if (left >= MAX(t->least, 1u) && t->lines < t->o->max_lines)
		print_left_out(t, left, nleft, depth);
}

int view_write_text(const struct view *v, const struct view_text_options *o, FILE *out)
{
	struct text t = { .v = v, .o = o, .out = out, .all = view_weight(&v->tree.nodes[0]) };
	char all[32];

	view_amount(v, t.all, all, sizeof(all));
	fprintf(out, "%s of %s in all\n", all, *v->type ? v->type : "nothing");
	if (t.all) {
		t.least = (u64)((double)t.all * o->min_share / 100);
		fputs("  total    self\n", out);
		print_children(&t, 0, 0);
	}
	if (v->cut)
		fputs("(not everything found room: ask for less time, or one service)\n", out);
	return stream_end(out);
}

/* --- picture ---------------------------------------------------------------------------------- */

#define ROW_HEIGHT 17
#define SVG_NODES  20000
#define SVG_MARGIN 10

struct picture {
	const struct view *v;
	FILE *out;
	u64 least;
	double scale;
	u32 left;
};

static void xml_text(const char *s, size_t max, FILE *out)
{
	size_t i;

	for (i = 0; s[i] && i < max; i++)
		switch (s[i]) {
		case '<':
			fputs("&lt;", out);
			break;
		case '>':
			fputs("&gt;", out);
			break;
		case '&':
			fputs("&amp;", out);
			break;
		case '"':
			fputs("&quot;", out);
			break;
		case '\'':
			fputs("&#39;", out);
			break;
		default:
			putc(s[i], out);
		}
}

/* The same function gets the same colour everywhere: hue by what it belongs to. */
static void colour(const struct view *v, u32 node, char dst[static 32])
{
	const struct view_symbol *s = &v->symbols[v->tree.nodes[node].symbol];
	u32 hue = 2166136261u;
	const char *c;

	for (c = s->group; *c; c++)
		hue = (hue ^ (u8)*c) * 16777619u;
	if (s->kind == VIEW_KERNEL)
		strcpy(dst, "hsl(212 28% 74%)");
	else
		snprintf(dst, 32, "hsl(%u 55%% 76%%)", hue % 360);
}

static void picture_node(struct picture *p, u32 at, double x, u32 depth)
{
	const struct view_node *n = &p->v->tree.nodes[at];
	double width = (double)view_weight(n) * p->scale;
	const char *name = name_of(p->v, at);
	u32 y = depth * ROW_HEIGHT + 34, fits = (u32)(width / 7);
	char fill[32] = "hsl(0 0% 86%)", amount[32];
	size_t cut = fits > 2 ? fits - 1 : 0;

	if (at)
		colour(p->v, at, fill);
	view_amount(p->v, view_weight(n), amount, sizeof(amount));
	fprintf(p->out, "<g><title>");
	xml_text(name, SIZE_MAX, p->out);
	fprintf(p->out,
		" - %s, %.2f%%</title><rect x=\"%.1f\" y=\"%u\" width=\"%.1f\" height=\"%d\" "
		"fill=\"%s\"/>",
		amount, 100 * (double)view_weight(n) / (double)view_weight(&p->v->tree.nodes[0]), x,
		y, MAX(width - 0.5, 0.1), ROW_HEIGHT - 1, fill);
	/* Not in the middle of a character. */
	while (cut && cut < strlen(name) && (name[cut] & 0xc0) == 0x80)
		cut--;
	if (cut) {
		fprintf(p->out, "<text x=\"%.1f\" y=\"%u\">", x + 3, y + 12);
		xml_text(name, cut, p->out);
		fputs("</text>", p->out);
	}
	fputs("</g>\n", p->out);
}

static void picture_tree(struct picture *p, u32 at, double x, u32 depth)
{
	const struct view_node *nodes = p->v->tree.nodes;
	u32 c;

	if (!p->left)
		return;
	p->left--;
	picture_node(p, at, x, depth);
	for (c = nodes[at].first; c != VIEW_NONE; c = nodes[c].next) {
		double width = (double)view_weight(&nodes[c]) * p->scale;

		if (view_weight(&nodes[c]) >= p->least && width >= 0.1)
			picture_tree(p, c, x, depth + 1);
		x += width;
	}
}

static u32 tree_depth(const struct view *v, u64 least, double scale)
{
	_cleanup_free_ u16 *of = calloc(v->tree.n, sizeof(*of));
	u32 i, max = 0;

	for (i = 1; of && i < v->tree.n; i++) {
		const struct view_node *n = &v->tree.nodes[i];

		of[i] = of[n->parent] + 1;
		if (view_weight(n) >= least && (double)view_weight(n) * scale >= 0.1)
			max = MAX(max, of[i]);
	}
	return max;
}

int view_write_svg(const struct view *v, u32 width, FILE *out)
{
	struct picture p = { .v = v, .out = out, .left = SVG_NODES };
	u64 all = view_weight(&v->tree.nodes[0]);
	char amount[32];
	int err = view_threshold(&v->tree, SVG_NODES, &p.least);

	if (err)
		return err;
	p.scale = (double)(width - 2 * SVG_MARGIN) / (double)MAX(all, 1u);
	view_amount(v, all, amount, sizeof(amount));
	fprintf(out,
		"<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
		"<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%u\" height=\"%u\" "
		"font-family=\"ui-monospace,monospace\" font-size=\"11\">\n"
		"<rect width=\"100%%\" height=\"100%%\" fill=\"#fff\"/>\n"
		"<text x=\"%d\" y=\"20\" font-size=\"13\">",
		width, (tree_depth(v, p.least, p.scale) + 1) * ROW_HEIGHT + 34 + SVG_MARGIN,
		SVG_MARGIN);
	xml_text(v->type, SIZE_MAX, out);
	fprintf(out, ": %s</text>\n", amount);
	if (all)
		picture_tree(&p, 0, SVG_MARGIN, 0);
	fputs("</svg>\n", out);
	return stream_end(out);
}
