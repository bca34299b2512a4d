// SPDX-License-Identifier: Apache-2.0
/*
 * Ruby 2.7 and later (CRuby), static and shared. Finds the VM in a process by the code of exported
 * functions, proves its offsets on the VM's own threads, and turns arrays of control frames into
 * methods, files and lines. README.md beside it says where each fact comes from and how a version is
 * added.
 */
#include "ruby.h"

#define FRAMES_SEEN_MAX 64

/* rb_execution_context_t and rb_control_frame_t (vm_core.h), the same since 2.5. */
#define EC_STACK      0
#define EC_STACK_SIZE 8
#define EC_CFP        16
#define CFP_PC        0
#define CFP_ISEQ      16
#define CFP_EP        32
#define CFP_READ      40

static const char *const fields[] = {
#define X(name) #name,
	LAYOUT_FIELDS(X)
#undef X
};

#define NFIELDS (sizeof(fields) / sizeof(*fields))

_Static_assert(sizeof(struct layout) == NFIELDS * sizeof(int32_t), "a row is its numbers");

/* --- detect -------------------------------------------------------------------------------------- */

/* What lies in a body is read with one look; pointers are aligned. */
static bool layout_sound(const struct layout *l)
{
	const int32_t *v = (const int32_t *)l;
	const int32_t body[] = { l->body_firstline, l->body_insns + 24, l->body_parent,
				 l->body_local };

	for (size_t i = 0; i < NFIELDS; i++)
		if (v[i] < -1 || v[i] > 1024)
			return false;
	for (size_t i = 0; i < sizeof(body) / sizeof(*body); i++)
		if (body[i] < 0 || body[i] > 176)
			return false;
	return l->frame_size >= CFP_READ && l->insn_size >= 4 && l->singleton_flag >= 0 &&
	       l->singleton_flag < 64 && l->thread_vm >= 0 && l->thread_ec >= 0 &&
	       l->ec_thread >= 0 &&
	       !((l->frame_size | l->thread_vm | l->thread_ec | l->ec_thread | l->body_insns |
		  l->body_parent | l->body_local) &
		 7);
}

static enum verdict detect(struct target *t, void *state, struct version *ret)
{
	struct ruby *s = state;
	struct target_module m;
	char text[16];

	for (uint32_t i = 0; target_module(t, i, &m); i++) {
		uint64_t addr = target_symbol(t, i, "ruby_version", NULL);

		if (!addr || !target_symbol(t, i, "ruby_vm_at_exit", NULL) ||
		    target_string(t, addr, sizeof(text) - 1, text, sizeof(text)) <= 0 ||
		    !version_parse(text, ret))
			continue;
		s->module = i;
		if (!target_layout(t, ret, layout_rows, &s->l))
			return UNWIND_VERSION;
		return layout_sound(&s->l) ? UNWIND_OK : UNWIND_BAD_LAYOUT;
	}
	return UNWIND_NOT_MINE;
}

/* --- self check ---------------------------------------------------------------------------------- */

struct stack {
	uint64_t cfp, end;
};

static bool stack_of(struct target *t, const struct ruby *s, uint64_t ec, struct stack *ret)
{
	uint64_t v[3];

	if (target_read(t, ec, v, sizeof(v)) || !v[0] || v[1] > 1u << 24)
		return false;
	ret->cfp = v[2];
	ret->end = v[0] + v[1] * 8 - (uint64_t)s->l.frame_size;
	return v[2] >= v[0] && v[2] <= ret->end && !(v[2] & 7);
}

/*
 * A frame of the first thread that runs a method in Ruby: code, its place in it, and the names of
 * both. The thread may be running, so what does not fit proves nothing until it has a stack.
 */
static enum verdict check_frame(struct target *t, struct ruby *s, uint64_t cfp)
{
	uint64_t v[CFP_READ / 8], insn;
	char text[NAME_SIZE];
	struct iseq q;

	if (target_read(t, cfp, v, sizeof(v)) || !v[CFP_PC / 8] || !v[CFP_ISEQ / 8] ||
	    iseq_read(t, s, v[CFP_ISEQ / 8], &q) != UNWIND_OK)
		return UNWIND_NOT_READY;
	if (!iseq_holds(&q, v[CFP_PC / 8]))
		return UNWIND_NOT_READY;
	if (object_string(t, s, q.label, text, sizeof(text)) <= 0 ||
	    object_string(t, s, q.base_label, text, sizeof(text)) <= 0 ||
	    iseq_path(t, s, &q, text, sizeof(text)) < 0 || !iseq_line(t, s, &q, v[CFP_PC / 8]) ||
	    target_u64(t, q.code, &insn))
		return UNWIND_BAD_LAYOUT;
	vmloop_find(t, s, insn);
	return UNWIND_OK;
}

static enum verdict check_stack(struct target *t, struct ruby *s)
{
	uint64_t th = find_thread(t, s, s->vm), ec;
	enum verdict v = UNWIND_NOT_READY;
	struct stack st;

	if (!th || target_u64(t, th + (uint64_t)s->l.thread_ec, &ec) || !stack_of(t, s, ec, &st))
		return UNWIND_NOT_READY;
	for (uint32_t i = 0; v != UNWIND_OK && st.cfp < st.end && i < FRAMES_SEEN_MAX; i++) {
		enum verdict one = check_frame(t, s, st.cfp);

		if (one != UNWIND_NOT_READY)
			v = one;
		st.cfp += (uint64_t)s->l.frame_size;
	}
	return v;
}

static enum verdict self_check(struct target *t, void *state)
{
	struct ruby *s = state;
	enum verdict v;
	bool ready;

	if (!find_vm(t, s, &ready))
		return ready ? UNWIND_BAD_LAYOUT : UNWIND_NOT_READY;
	v = check_stack(t, s);
	if (v != UNWIND_OK)
		return v;
	if (!find_symbols(t, s))
		return UNWIND_NO_SYMBOL;
	if (!object_class_ids(t, s))
		return UNWIND_BAD_LAYOUT;
	v = find_context(t, s);
	if (v == UNWIND_OK)
		gc_find(t, s);
	return v;
}

/* --- recipe -------------------------------------------------------------------------------------- */

static void recipe(const void *state, struct recipe *ret)
{
	const struct ruby *s = state;

	ret->head = RECIPE_TP;
	for (uint8_t i = 0; i < s->nhops; i++)
		ret->hop[ret->nhops++] = s->hop[i];
	/* The stack's end stands in the context, beside the innermost frame. */
	ret->end_hop = ret->nhops;
	ret->hop[ret->nhops++] = EC_CFP;
	ret->end_a = EC_STACK;
	ret->end_b = EC_STACK_SIZE;
	ret->end_shift = 3;
	ret->end_add = -s->l.frame_size;
	ret->stride = s->l.frame_size;
	ret->len = CFP_READ;
	ret->word[WORD_PC] = CFP_PC / 8;
	ret->word[WORD_ISEQ] = CFP_ISEQ / 8;
	ret->word[WORD_EP] = CFP_EP / 8;
	ret->nwords = WORDS;
	ret->peek_word[PEEK_FLAGS] = ret->peek_word[PEEK_METHOD] = WORD_EP;
	ret->peek_off[PEEK_FLAGS] = 0;
	ret->peek_off[PEEK_METHOD] = EP_METHOD;
	ret->npeeks = PEEKS;
	ret->limit = RECIPE_NODES_MAX;
	if (!s->gc_mask)
		return;
	ret->thread_hops = s->gc_hops;
	ret->flag = s->gc_flag;
	ret->flag_mask = s->gc_mask;
	memcpy(ret->flag_owner, s->gc_owner, sizeof(ret->flag_owner));
	ret->flag_hop = s->gc_hop;
}

static uint32_t loops(const void *state, struct code_range ret[UNWINDER_LOOPS])
{
	const struct ruby *s = state;

	memcpy(ret, s->loops, sizeof(s->loops));
	return s->nloops;
}

static const struct unwinder ruby = {
	.name = "ruby",
	.title = "Ruby",
	.sample_type = "ruby_wall",
	.ranges = { { "ruby", { 2, 7, 0 }, { 4, 0, 0 } } },
	.state_size = sizeof(struct ruby),
	.layout_fields = fields,
	.nlayout_fields = NFIELDS,
	.loop_runs = true,
	.detect = detect,
	.self_check = self_check,
	.recipe = recipe,
	.frames = frames_of,
	.loops = loops,
};
UNWINDER_REGISTER(ruby);
