// SPDX-License-Identifier: Apache-2.0
// Draws what the daemon answers (docs/api.md). Text from answers only ever becomes text: canvas
// text, textContent, option labels. All that one may want to come back to is in the address.
"use strict";

const $ = (id) => document.getElementById(id);
const state = { s: "", t: "cpu", last: 900, from: 0, to: 0, k: true, l: {}, q: "", f: "", z: "",
	s2: "", from2: 0, to2: 0, cmp: "", norm: true, sort: "self", up: false, ssort: "cpu", sup: false, max: 16000 };
let status = null, services = null, flame = null, func = null, asked = 0, timer = 0;

// --- address ---------------------------------------------------------------------------------
const PLAIN = ["s", "t", "q", "f", "z", "s2", "cmp", "sort", "ssort"], NUMBERS = ["last", "from", "to", "from2", "to2", "max"];
const defaults = JSON.parse(JSON.stringify(state));

function readAddress() {
	const p = new URLSearchParams(location.search);
	Object.assign(state, JSON.parse(JSON.stringify(defaults)));
	for (const k of PLAIN) if (p.has(k)) state[k] = p.get(k);
	for (const k of NUMBERS) if (/^\d{1,15}$/.test(p.get(k) || "")) state[k] = Number(p.get(k));
	state.k = p.get("k") !== "0";
	state.norm = p.get("norm") !== "0";
	state.up = p.get("up") === "1";
	state.sup = p.get("sup") === "1";
	for (const [k, v] of p) if (k.startsWith("l.")) state.l[k.slice(2)] = v;
}

function writeAddress(push) {
	const p = new URLSearchParams();
	for (const k of PLAIN) if (state[k] && state[k] !== defaults[k]) p.set(k, state[k]);
	for (const k of NUMBERS) if (state[k] !== defaults[k]) p.set(k, state[k]);
	if (!state.k) p.set("k", "0");
	if (!state.norm) p.set("norm", "0");
	if (state.up) p.set("up", "1");
	if (state.sup) p.set("sup", "1");
	for (const k in state.l) p.set("l." + k, state.l[k]);
	const url = location.pathname + (p.size ? "?" + p : "");
	if (url === location.pathname + location.search) return;
	history[push ? "pushState" : "replaceState"](null, "", url);
}

// --- numbers for people ----------------------------------------------------------------------
function amount(ns, unit) {
	if (unit && unit !== "nanoseconds") return ns.toLocaleString("en");
	const steps = [[7200e9, 3600e9, "h"], [120e9, 60e9, "min"], [1e9, 1e9, "s"], [1e6, 1e6, "ms"], [1e3, 1e3, "µs"]];
	for (const [least, one, name] of steps)
		if (Math.abs(ns) >= least) return Number((ns / one).toPrecision(3)) + " " + name;
	return ns + " ns";
}
const percent = (x) => (x * 100 >= 9.95 ? (x * 100).toFixed(0) : (x * 100).toFixed(x * 100 >= 0.095 ? 1 : 2)) + " %";
const bytes = (n) => (n / 1e6).toFixed(n < 1e7 ? 1 : 0) + " MB";
const clock = (ms) => new Date(ms).toLocaleTimeString([], { hour12: false });
function when(from, to) {
	const day = new Date(from).toDateString() === new Date().toDateString() ? "" : new Date(from).toLocaleDateString() + " ";
	return day + clock(from) + " – " + clock(to);
}

// --- small pieces ----------------------------------------------------------------------------
function el(tag, props, ...children) {
	const e = document.createElement(tag);
	for (const k in props || {}) {
		if (k === "class") e.className = props[k];
		else if (k.startsWith("on")) e.addEventListener(k.slice(2), props[k]);
		else if (k in e && k !== "list") e[k] = props[k];
		else e.setAttribute(k, props[k]);
	}
	e.append(...children.filter((c) => c !== null && c !== undefined && c !== ""));
	return e;
}
function say(text) { $("message").textContent = text; $("message").hidden = !text; }
async function get(path, params) {
	const r = await fetch(path + "?" + params, { headers: { Accept: "application/json" } });
	if (r.status === 401) throw new Error("This page needs its token: open it as /?token=… once.");
	const data = await r.json().catch(() => ({ error: "no answer that makes sense" }));
	if (!r.ok) throw new Error(data.error || r.statusText);
	return data;
}

// --- what to ask for ---------------------------------------------------------------------------
function range() {
	const now = Date.now() + (status ? status.skew : 0);
	if (state.from && state.to) return [state.from, state.to];
	if (!state.last) return [services && services.first ? services.first : 1, now];
	return [now - state.last * 1000, now];
}
function range2() {
	const [from, to] = range();
	if (state.cmp === "before") return [from - (to - from), from];
	if (state.cmp === "strip" && state.from2) return [state.from2, state.to2];
	return [from, to];
}
const comparing = () => state.cmp === "before" || (state.cmp === "strip" && state.from2 > 0) || (state.cmp === "service" && state.s2 !== "");
function question() {
	const [from, to] = range(), p = new URLSearchParams({ type: state.t, service: state.s || "*", from: Math.floor(from), to: Math.ceil(to) });
	p.set("max", String(state.max));
	if (!state.k) p.set("kernel", "0");
	for (const k in state.l) p.set("l." + k, state.l[k]);
	if (comparing()) {
		const [f2, t2] = range2();
		p.set("from2", Math.floor(f2)); p.set("to2", Math.ceil(t2));
		if (state.cmp === "service") p.set("service2", state.s2);
	}
	return p;
}

// --- header ------------------------------------------------------------------------------------
function fact(name, value, cls) { return el("div", {}, el("dt", {}, name), el("dd", { class: cls || "" }, value)); }

// How stacks end, and what to do about it.
const ADVICE = [
	["cut at the frame limit", "Stacks deeper than the limit are cut: raise max_frames."],
	["frame pointer outside", "Code without unwind tables and without frame pointers: build it with -fno-omit-frame-pointer, or keep its .eh_frame."],
	["ended in code made at run time", "Code made at run time keeps no frame pointers: turn them on in its runtime (Java: -XX:+PreserveFramePointer, Node: --perf-basic-prof)."],
	["not resident", "Pages of the stack were swapped out or not read yet; the next samples of these threads are whole."],
	["cannot be described", "Functions written in assembly without unwind rules: nothing to do, it is their authors'."],
	["not in executable memory", "A return address led nowhere, so the stack was ended there rather than guessed."],
	["32-bit process", "32-bit processes are counted but not unwound."],
	["too many at once", "More stacks at once than there is room for: raise cpu_budget, or lower sample_hz."],
];
const advice = (text) => ADVICE.filter(([what]) => text.includes(what)).map(([, then]) => then);

function showStatus() {
	const s = status, facts = $("facts");
	$("host").textContent = s.host;
	document.title = s.host + " – ebpfprofiler";
	facts.replaceChildren();
	if (!s.measured) {
		facts.append(fact("", "the first window ends within " + s.window_s + " s"));
	} else {
		const lost = s.samples_due - s.samples_kept;
		facts.append(
			fact("rate", s.hz + " Hz" + (s.hz < s.configured_hz ? " of " + s.configured_hz : "") + " × " + s.cpus + " CPUs", s.hz < s.configured_hz ? "warn" : ""),
			fact("cost", s.cost_percent.toFixed(2) + " % of a CPU", s.cost_percent > s.cost_budget ? "warn" : ""),
			fact("memory", bytes(s.rss_bytes + s.map_bytes)),
			fact("lost", s.samples_lost ? lost + " of " + s.samples_due + " samples" : "none of " + s.samples_due + " samples", s.samples_lost ? "warn" : ""),
			fact("stacks", wholeShare(s.quality)));
		const refused = s.runtimes.filter((r) => !r.ok && !r.text.includes("switched off")), off = s.runtimes.filter((r) => r.text.includes("switched off"));
		if (refused.length) facts.append(fact("refused", refused.length + (refused.length > 1 ? " processes" : " process"), "warn"));
		if (off.length) facts.append(fact("runtimes off", off.length + (off.length > 1 ? " processes" : " process")));
	}
	const d = $("details"), list = (items) => el("ul", {}, ...items.map((i) => el("li", {}, i)));
	d.replaceChildren(
		el("p", {}, "Sampling by " + (s.clock || "–") + "; off CPU: " + (s.offcpu || "off") + "."),
		el("p", {}, "Cost by part, in percent of one CPU: on CPU " + s.cost_on_cpu.toFixed(2) + ", off CPU " + s.cost_off_cpu.toFixed(2) + ", runtimes " +
			s.cost_runtimes.toFixed(2) + "; budget " + s.cost_budget + ". Answers of this page are not counted."),
		el("p", {}, "Samples lost: " + (s.samples_lost || "none") + ". Waits: " + s.waits_kept + " kept of " + s.waits_due + ", lost: " + (s.waits_lost || "none") + "."),
		el("p", {}, "User stacks of all that is profiled: " + (s.quality || "nothing yet") + "."),
		list(advice(s.quality)));
	if (s.runtimes.length)
		d.append(el("p", {}, "Processes with a runtime:"), list(s.runtimes.map((r) =>
			r.exe + " (" + r.pid + "): " + r.text + (r.ok ? "" : " – its stacks stay native; `ebpfprofiler doctor` says more"))));
}
function wholeShare(text) {
	let whole = 0, all = 0;
	for (const part of text.split(/ %,? ?/)) {
		const m = /^(.*) ([\d.]+)$/.exec(part.trim());
		if (!m) continue;
		if (m[1].startsWith("kernel thread")) continue;
		all += Number(m[2]);
		if (m[1].startsWith("complete")) whole += Number(m[2]);
	}
	return all ? percent(whole / all) + " whole" : "–";
}

// --- services ------------------------------------------------------------------------------------
const isWait = (t) => t === "offcpu" || t === "lock";
const badgeOf = (s) => Object.keys(s.values).filter((t) => /_(wall|cpu)$/.test(t)).map((t) => t.replace(/_(wall|cpu)$/, ""));
const TYPE_NAMES = { cpu: "CPU", offcpu: "Off CPU", lock: "Locks" };
const typeName = (t) => TYPE_NAMES[t] || (/_wall$/.test(t) ? t.replace("_wall", "") + " wall" : t);

function serviceColumns() {
	return [["name", "Service", (s) => s.title], ["cpu", "CPU", (s) => s.values.cpu || 0], ["offcpu", "Waiting", (s) => s.values.offcpu || 0]];
}
function head(table, columns, by, up, choose) {
	table.tHead.rows[0].replaceChildren(...columns.map(([key, label]) =>
		el("th", { scope: "col", "aria-sort": by === key ? (up ? "ascending" : "descending") : "none" },
			el("button", { type: "button", onclick: () => choose(key) }, label))));
}
function sortRows(rows, value, up) {
	rows.sort((a, b) => { const x = value(a), y = value(b), c = typeof x === "string" ? (x < y ? -1 : x > y ? 1 : 0) : y - x; return up ? -c : c; });
	return rows;
}
function serviceTitle(s) {
	if (s.container) return (s.exe || "container") + " · " + s.container.slice(0, 12);
	return s.name || s.key;
}
function showServices() {
	const columns = serviceColumns(), body = $("services").tBodies[0], seconds = Math.max(services.covered_ms / 1000, 1);
	const rows = services.services;
	for (const s of rows) s.title = serviceTitle(s);
	const col = columns.find((c) => c[0] === state.ssort) || columns[1];
	sortRows(rows, col[2], state.sup);
	head($("services"), columns, col[0], state.sup, (key) => {
		if (state.ssort === key) state.sup = !state.sup; else { state.ssort = key; state.sup = false; }
		writeAddress(); showServices();
	});
	const cpus = rows.map((s) => s.values.cpu || 0), most = Math.max(1, ...cpus), all = cpus.reduce((a, b) => a + b, 0);
	const line = (key, name, sub, badges, cpu, wait, quality) => {
		const tr = el("tr", { class: state.s === key ? "chosen" : "" });
		const b = el("button", { type: "button", class: "name", title: name, onclick: () => choose({ s: key, l: {}, f: "", z: "" }) }, name);
		if (state.s === key) b.setAttribute("aria-current", "true");
		tr.append(el("td", {}, b, ...badges.map((x) => el("span", { class: "badge" }, x)), el("span", { class: "sub" }, sub)));
		const meter = el("i"); meter.style.width = Math.round(100 * cpu / (key ? most : Math.max(all, 1))) + "%";
		const share = cpu / 1e9 / seconds;
		tr.append(el("td", { title: amount(cpu) + " of CPU time, " + (100 * share).toFixed(2) + " % of one CPU, " + percent(all ? cpu / all : 0) + " of all" + quality },
			key ? el("span", { class: "meter", "aria-hidden": "true" }, meter) : "", percent(share)),
			el("td", { title: "thread time spent waiting" }, wait ? amount(wait) : "–"));
		body.append(tr);
	};
	body.replaceChildren();
	line("", "All services", rows.length + " in " + amount(services.covered_ms * 1e6) + " recorded", [], all, rows.reduce((a, s) => a + (s.values.offcpu || 0), 0), "");
	for (const s of rows.slice(0, 400)) {
		const whole = s.stacks ? s.whole / s.stacks : 1;
		line(s.key, s.title, [s.container ? s.name : "", whole < 0.9 ? "stacks " + percent(whole) + " whole" : ""].filter(Boolean).join(" · "),
			badgeOf(s), s.values.cpu || 0, s.values.offcpu || 0, "; stacks " + percent(whole) + " whole");
	}
	const types = ["cpu", "offcpu"], mine = rows.filter((s) => !state.s || s.key === state.s);
	for (const s of mine) for (const t in s.values) if (!types.includes(t)) types.push(t);
	if (!types.includes(state.t)) types.push(state.t);
	$("types").replaceChildren(...types.map((t) => el("button", { type: "button", "aria-pressed": String(t === state.t),
		onclick: () => choose({ t, z: "" }) }, typeName(t))));
	$("service2").replaceChildren(el("option", { value: "" }, "choose…"), ...rows.map((s) => el("option", { value: s.key }, s.title)));
	$("service2").value = state.s2;
	if (services.unread) say("Reading older profiles: " + services.unread + " to go.");
}

// --- strip of time ---------------------------------------------------------------------------------
const strip = { from: 0, to: 0, values: [], drag: null };
function stripRange() {
	const now = Date.now() + (status ? status.skew : 0), [from, to] = range();
	const oldest = services && services.first ? services.first : from;
	const span = Math.max((to - from) * 4, 3600e3);
	let a = Math.max(Math.min(from, now - span), oldest - 60e3), b = now;
	if (state.from2) a = Math.min(a, state.from2);
	if (state.cmp === "before") a = Math.min(a, from - (to - from));
	return [Math.floor(Math.max(a, 1)), Math.ceil(Math.max(b, to))];
}
function css(name) { return getComputedStyle(document.documentElement).getPropertyValue(name).trim(); }
function fit(canvas, height) {
	const ratio = window.devicePixelRatio || 1, width = canvas.clientWidth || canvas.parentElement.clientWidth;
	canvas.width = Math.round(width * ratio); canvas.height = Math.round(height * ratio);
	canvas.style.height = height + "px";
	const g = canvas.getContext("2d");
	g.setTransform(ratio, 0, 0, ratio, 0, 0);
	return [g, width];
}
function drawStrip() {
	const c = $("strip"), [g, w] = fit(c, 44), h = 44, x = (ms) => (ms - strip.from) / (strip.to - strip.from) * w;
	if (!(strip.to > strip.from)) return;
	const band = (from, to, colour) => { g.globalAlpha = 0.22; g.fillStyle = colour; g.fillRect(x(from), 0, Math.max(x(to) - x(from), 2), h); g.globalAlpha = 1;
		g.fillRect(x(from), 0, 1, h); g.fillRect(x(to) - 1, 0, 1, h); };
	const [from, to] = strip.drag && !strip.drag.second ? strip.drag.range : range();
	if (comparing() && state.cmp !== "service") band(...range2(), css("--b"));
	if (strip.drag && strip.drag.second) band(...strip.drag.range, css("--b"));
	band(from, to, css("--accent"));
	const most = Math.max(1, ...strip.values), step = w / strip.values.length;
	g.fillStyle = css("--dim");
	strip.values.forEach((v, i) => { const y = v / most * (h - 16); g.fillRect(i * step, h - y, Math.max(step - 0.5, 0.5), y); });
	g.font = "10px system-ui, sans-serif"; g.fillStyle = css("--dim"); g.textBaseline = "top";
	const n = Math.max(2, Math.floor(w / 150));
	for (let i = 0; i < n; i++) g.fillText(clock(strip.from + (strip.to - strip.from) * i / n), w * i / n + 4, 2);
	c.setAttribute("aria-valuetext", when(from, to));
	c.setAttribute("aria-valuenow", Math.round(100 * (to - strip.from) / (strip.to - strip.from)));
}
function stripAt(e) {
	const r = $("strip").getBoundingClientRect();
	return strip.from + Math.min(Math.max((e.clientX - r.left) / r.width, 0), 1) * (strip.to - strip.from);
}
$("strip").addEventListener("pointerdown", (e) => {
	$("strip").setPointerCapture(e.pointerId);
	strip.drag = { start: stripAt(e), range: null, second: e.shiftKey };
	strip.drag.range = [strip.drag.start, strip.drag.start];
});
$("strip").addEventListener("pointermove", (e) => {
	if (!strip.drag) return;
	const at = stripAt(e);
	strip.drag.range = [Math.min(at, strip.drag.start), Math.max(at, strip.drag.start)];
	drawStrip();
});
$("strip").addEventListener("pointerup", () => {
	const d = strip.drag;
	strip.drag = null;
	if (!d) return;
	const [from, to] = d.range.map(Math.round);
	if (to - from < (strip.to - strip.from) / 300) return drawStrip();
	if (d.second) choose({ from2: from, to2: to, cmp: "strip" });
	else choose({ from, to, last: 0 });
});
$("strip").addEventListener("keydown", (e) => {
	const [from, to] = range().map(Math.round), step = Math.round((to - from) / 2) * (e.key === "ArrowLeft" ? -1 : e.key === "ArrowRight" ? 1 : 0);
	if (step) { e.preventDefault(); choose({ from: from + step, to: to + step, last: 0 }); }
});

// --- trees -----------------------------------------------------------------------------------------
const ROW = 18;
const KIND_SHIFT = { kernel: 1, runtime: 2, code: 3, label: 4, unknown: 5 };
function hash(text) { let h = 2166136261; for (let i = 0; i < text.length; i++) h = Math.imul(h ^ text.charCodeAt(i), 16777619); return h >>> 0; }

// A tree as it came: parents by place, offsets in time, one colour per thing that a frame is part of.
function parseTree(flat, sides) {
	const step = 2 + 2 * sides, n = flat.length / step;
	const t = { n, sides, sym: new Uint32Array(n), depth: new Uint16Array(n), parent: new Int32Array(n), x: new Float64Array(n), w: new Float64Array(n),
		total: [new Float64Array(n), new Float64Array(n)], self: [new Float64Array(n), new Float64Array(n)], rows: 0, sum: 0 };
	const path = [], used = [];
	for (let i = 0; i < n; i++) {
		const at = i * step, d = flat[at + 1];
		t.sym[i] = flat[at]; t.depth[i] = d;
		for (let k = 0; k < sides; k++) { t.total[k][i] = flat[at + 2 + 2 * k]; t.self[k][i] = flat[at + 3 + 2 * k]; }
		t.parent[i] = d ? path[d - 1] : -1;
		path[d] = i;
		t.rows = Math.max(t.rows, d + 1);
	}
	t.used = used;
	return t;
}
// Widths: time, or, when two sides are compared by their shapes, shares.
function layout(t, totals) {
	const f = t.sides < 2 ? [1, 0] : state.norm ? [0.5 / Math.max(totals[0], 1), 0.5 / Math.max(totals[1], 1)] : [1, 1];
	const end = new Float64Array(t.n + 1);
	for (let i = 0; i < t.n; i++) {
		const p = t.parent[i] + 1;
		t.w[i] = t.total[0][i] * f[0] + t.total[1][i] * f[1];
		t.x[i] = end[p];
		end[p] += t.w[i];
		end[i + 1] = t.x[i];
	}
	t.sum = t.sides < 2 ? totals[0] : totals[0] * f[0] + totals[1] * f[1];
}
function shares(t, i, totals) { return [0, 1].map((k) => totals[k] ? t.total[k][i] / totals[k] : 0); }

class Flame {
	constructor(canvas, up) {
		this.canvas = canvas; this.up = up; this.tree = null; this.zoom = -1; this.focus = -1; this.hits = null;
		canvas.setAttribute("role", "img");
		canvas.addEventListener("pointermove", (e) => this.hover(e));
		canvas.addEventListener("pointerleave", () => { $("tip").hidden = true; });
		canvas.addEventListener("click", (e) => { const i = this.at(e); if (i >= 0) this.zoomTo(i === this.zoom ? -1 : i); });
		canvas.addEventListener("contextmenu", (e) => { const i = this.at(e); if (i >= 0) { e.preventDefault(); showFunction(this.name(i)); } });
		canvas.addEventListener("keydown", (e) => this.key(e));
	}
	set(tree, symbols, totals, unit) {
		Object.assign(this, { tree, symbols, totals, unit, zoom: -1, focus: -1 });
		// One look at the scheme, one colour for a group: a view may have 50,000 symbols.
		this.dark = matchMedia("(prefers-color-scheme: dark)").matches;
		const known = new Map();
		this.colours = symbols.map((s) => {
			const key = s[2] + s[1];
			if (!known.has(key)) known.set(key, this.colour(s));
			return known.get(key);
		});
		layout(tree, totals);
		this.canvas.setAttribute("aria-label", (this.up ? "Callers: " : "Flame graph: ") + tree.n + " frames. Arrow keys move, Enter zooms, Escape zooms out, c shows callers.");
	}
	colour(s) {
		const dark = this.dark, h = hash(s[1]) % 360, l = dark ? 34 : 78;
		if (s[2] === "kernel") return `hsl(214 ${dark ? 14 : 22}% ${dark ? 36 : 76}%)`;
		if (s[2] === "label") return dark ? "hsl(0 0% 30%)" : "hsl(0 0% 84%)";
		if (s[2] === "unknown") return dark ? "hsl(0 0% 26%)" : "hsl(0 0% 88%)";
		// Native files warm, interpreters' green to blue: what is what is seen at once.
		return s[2] === "runtime" ? `hsl(${90 + h / 3.3 | 0} ${dark ? 32 : 48}% ${l}%)` : `hsl(${8 + (h / 6.5 | 0)} ${dark ? 42 : 68}% ${l + (dark ? (h >> 2) % 6 : (h >> 2) % 8 - 4)}%)`;
	}
	// Blue: less than before; red: more.
	delta(i) {
		const [a, b] = state.norm ? shares(this.tree, i, this.totals) : [this.tree.total[0][i], this.tree.total[1][i]];
		const d = a + b ? (a - b) / (a + b) : 0, dark = this.dark, m = Math.min(Math.abs(d) * 1.6, 1);
		return `hsl(${d > 0 ? 14 : 212} ${Math.round(m * 75)}% ${dark ? 28 + m * 12 : 88 - m * 26}%)`;
	}
	name(i) { return this.symbols[this.tree.sym[i]][0]; }
	draw() {
		const t = this.tree, began = performance.now();
		if (!t || !t.n) return;
		const base = this.zoom >= 0 ? t.depth[this.zoom] : 0;
		let rows = t.rows;
		const x0 = this.zoom >= 0 ? t.x[this.zoom] : 0, sum = this.zoom >= 0 ? t.w[this.zoom] : t.sum, end = x0 + sum;
		if (this.zoom >= 0) {
			rows = 0;
			for (let i = this.zoom; i < t.n && (i === this.zoom || t.depth[i] > base); i++) rows = Math.max(rows, t.depth[i] - base + 1);
		}
		this.crumbs = this.zoom >= 0 ? base : 0;
		const height = Math.min(rows * ROW + 2, 15000), [g, w] = fit(this.canvas, height), scale = w / Math.max(sum, 1e-300);
		const text = css("--text"), fade = css("--panel"), from = this.zoom >= 0 ? this.zoom : 0;
		g.font = "11.5px ui-monospace, 'DejaVu Sans Mono', Menlo, monospace"; g.textBaseline = "middle";
		const letter = g.measureText("m").width;
		this.view = { x0, scale, base, height, from };
		const last = new Float64Array(t.rows + 1).fill(-1);
		let drawn = 0;
		for (let i = from; i < t.n; i++) {
			if (this.zoom >= 0 && i > from && t.depth[i] <= base) break;
			const px = t.w[i] * scale;
			if (t.x[i] > end) continue;
			const x = (t.x[i] - x0) * scale, d = t.depth[i] - base, y = this.up ? height - (d + 1) * ROW : d * ROW;
			const hit = !this.hits || this.hits[t.sym[i]];
			if (px < 0.5) {
				// Too thin to be told apart: one of them stands for all that share a pixel.
				if (Math.floor(x) <= last[d]) continue;
				last[d] = Math.floor(x);
			}
			drawn++;
			g.fillStyle = hit ? (t.sides > 1 ? this.delta(i) : this.colours[t.sym[i]]) : fade;
			g.fillRect(x, y, Math.max(px - (px > 3 ? 0.7 : 0), 0.7), ROW - 1);
			if (px > 3 * letter) {
				const name = this.name(i), fits = Math.floor((px - 6) / letter);
				g.fillStyle = hit ? text : css("--dim");
				g.fillText(name.length > fits ? name.slice(0, Math.max(fits - 1, 1)) + "…" : name, x + 3, y + ROW / 2, px - 4);
			}
		}
		if (this.focus >= 0) {
			const i = this.focus, d = t.depth[i] - base, y = this.up ? height - (d + 1) * ROW : d * ROW;
			g.strokeStyle = css("--accent"); g.lineWidth = 2;
			g.strokeRect((t.x[i] - x0) * scale + 1, y + 1, Math.max(t.w[i] * scale - 2, 2), ROW - 3);
		}
		this.canvas.dataset.drawMs = (performance.now() - began).toFixed(1);
		this.canvas.dataset.frames = t.n;
		this.canvas.dataset.drawn = drawn;
	}
	at(e) {
		const t = this.tree, v = this.view;
		if (!t || !v) return -1;
		const r = this.canvas.getBoundingClientRect(), row = Math.floor((this.up ? r.bottom - e.clientY : e.clientY - r.top) / ROW) + v.base;
		const x = (e.clientX - r.left) / v.scale + v.x0;
		for (let i = v.from; i < t.n; i++) {
			if (this.zoom >= 0 && i > v.from && t.depth[i] <= v.base) break;
			if (t.depth[i] === row && x >= t.x[i] && x < t.x[i] + t.w[i]) return i;
		}
		return -1;
	}
	describe(i) {
		const t = this.tree, s = this.symbols[t.sym[i]], sh = shares(t, i, this.totals);
		const lines = [s[0], s[2] === "kernel" ? "kernel" : [s[1], s[3] && s[3] !== s[1] ? s[3] + (s[4] ? ":" + s[4] : "") : ""].filter(Boolean).join(" · ")];
		const side = (k) => amount(t.total[k][i], this.unit) + " (" + percent(sh[k]) + "), self " + amount(t.self[k][i], this.unit);
		if (t.sides < 2) lines.push(side(0));
		else lines.push("now: " + side(0), "then: " + side(1), "difference: " + (state.norm ? ((sh[0] - sh[1]) * 100).toFixed(2) + " points" : amount(t.total[0][i] - t.total[1][i], this.unit)));
		return lines;
	}
	hover(e) {
		const i = this.at(e), tip = $("tip");
		tip.hidden = i < 0;
		if (i < 0) return;
		const [name, ...rest] = this.describe(i);
		tip.replaceChildren(el("b", {}, name), ...rest.map((l) => el("div", { class: "dim" }, l)));
		const w = tip.offsetWidth, h = tip.offsetHeight;
		tip.style.left = Math.max(4, Math.min(e.clientX + 12, innerWidth - w - 8)) + "px";
		tip.style.top = (e.clientY + 18 + h > innerHeight ? Math.max(e.clientY - h - 10, 2) : e.clientY + 18) + "px";
	}
	path(i) { const p = []; for (; i >= 0; i = this.tree.parent[i]) p.unshift(this.name(i)); return p; }
	zoomTo(i) {
		this.zoom = i;
		if (this.canvas.id === "flame") { state.z = i >= 0 ? this.path(i).join("\n").slice(-1500) : ""; writeAddress(true); }
		this.draw(); showCrumbs();
	}
	// The frame whose path ends like the one in the address.
	find(path) {
		const names = path.split("\n");
		for (let i = 0; i < this.tree.n; i++) {
			if (this.name(i) !== names[names.length - 1]) continue;
			const p = this.path(i).join("\n");
			if (p.slice(-1500) === path) return i;
		}
		return -1;
	}
	key(e) {
		const t = this.tree;
		if (!t || !t.n) return;
		let i = this.focus < 0 ? Math.max(this.zoom, 0) : this.focus;
		const sibling = (step) => {
			for (let j = i + step; j >= 0 && j < t.n; j += step) {
				if (t.depth[j] < t.depth[i]) return i;
				if (t.depth[j] === t.depth[i] && t.parent[j] === t.parent[i]) return j;
			}
			return i;
		};
		const down = () => (i + 1 < t.n && t.parent[i + 1] === i ? i + 1 : i), parent = () => (t.parent[i] >= 0 && i !== this.zoom ? t.parent[i] : i);
		const moves = { ArrowDown: this.up ? parent : down, ArrowUp: this.up ? down : parent, ArrowLeft: () => sibling(-1), ArrowRight: () => sibling(1) };
		if (e.key in moves) i = this.focus < 0 ? i : moves[e.key]();
		else if (e.key === "Enter") this.zoomTo(i);
		else if (e.key === "Escape") { this.zoomTo(-1); }
		else if (e.key === "c") return showFunction(this.name(i));
		else return;
		e.preventDefault();
		this.focus = i;
		this.draw();
		$("focus").textContent = this.describe(i).join(", ");
	}
}
const main = new Flame($("flame"), false), callers = new Flame($("callers"), true);

function showCrumbs() {
	$("crumbs").textContent = main.zoom >= 0 ? main.path(main.zoom).join("  ›  ") : "";
	$("crumbs").title = $("crumbs").textContent;
	$("zoom-out").hidden = main.zoom < 0 && callers.zoom < 0;
}

// --- search ----------------------------------------------------------------------------------------
function matcher() {
	if (!state.q) return null;
	try { const r = new RegExp(state.q, "i"); return (s) => r.test(s); } catch (e) { const q = state.q.toLowerCase(); return (s) => s.toLowerCase().includes(q); }
}
function search() {
	const match = matcher(), symbols = main.symbols || [];
	main.hits = callers.hits = null;
	$("matched").textContent = "";
	if (match && main.tree) {
		main.hits = symbols.map((s) => match(s[0]) || match(s[1]));
		callers.hits = main.hits;
		// The outermost ones that match: what is below them is theirs.
		const t = main.tree, inside = new Uint8Array(t.n), sum = [0, 0];
		for (let i = 0; i < t.n; i++) {
			if (t.parent[i] >= 0 && inside[t.parent[i]]) { inside[i] = 1; continue; }
			if (!main.hits[t.sym[i]]) continue;
			inside[i] = 1;
			for (let k = 0; k < t.sides; k++) sum[k] += t.total[k][i];
		}
		const of = (k) => percent(main.totals[k] ? sum[k] / main.totals[k] : 0);
		$("matched").textContent = "matched " + of(0) + (t.sides > 1 ? " now, " + of(1) + " then" : "");
	}
	main.draw();
	if (func) callers.draw();
	showTable();
}

// --- table -----------------------------------------------------------------------------------------
function tableRows() {
	const sides = flame.sides, step = 1 + 2 * sides, rows = [], scale = flame.totals.map((x) => 1 / Math.max(x, 1));
	for (let at = 0; at < flame.table.length; at += step) {
		const v = flame.table, r = { sym: flame.symbols[v[at]], total: v[at + 1], self: v[at + 2] };
		r.name = r.sym[0];
		if (sides > 1) {
			r.total2 = v[at + 3]; r.self2 = v[at + 4];
			r.delta = state.norm ? r.self * scale[0] - r.self2 * scale[1] : r.self - r.self2;
			r.deltaTotal = state.norm ? r.total * scale[0] - r.total2 * scale[1] : r.total - r.total2;
		}
		rows.push(r);
	}
	return rows;
}
function showTable() {
	const table = $("functions"), body = table.tBodies[0];
	if (!flame) return;
	const two = flame.sides > 1, match = matcher(), sum = Math.max(flame.totals[0], 1), sum2 = Math.max(flame.totals[1] || 0, 1);
	table.closest(".split").classList.toggle("two", two);
	const columns = two ? [["name", "Function"], ["self", "Self now"], ["self2", "then"], ["delta", "± self"], ["deltaTotal", "± total"]]
		: [["name", "Function"], ["self", "Self"], ["total", "Total"]];
	const by = columns.some((c) => c[0] === state.sort) ? state.sort : "self";
	head(table, columns, by, state.up, (key) => {
		if (state.sort === key) state.up = !state.up; else { state.sort = key; state.up = false; }
		writeAddress(); showTable();
	});
	let rows = tableRows();
	if (match) rows = rows.filter((r) => match(r.name) || match(r.sym[1]));
	const size = (r) => by.startsWith("delta") ? Math.abs(r[by]) : r[by];
	sortRows(rows, size, state.up);
	body.replaceChildren();
	const change = (d) => el("td", { class: d > 0 ? "delta-up" : d < 0 ? "delta-down" : "" }, (d > 0 ? "+" : d < 0 ? "−" : "") + (state.norm ? (Math.abs(d) * 100).toFixed(2) : amount(Math.abs(d), flame.unit)));
	for (const r of rows.slice(0, 300)) {
		const b = el("button", { type: "button", class: "name", title: r.name + (r.sym[1] ? "\n" + r.sym[1] : ""), onclick: () => showFunction(r.name) }, r.name);
		const tr = el("tr", {}, el("td", {}, b));
		const share = (v, s) => el("td", { title: amount(v, flame.unit) }, v ? percent(v / s) : "–");
		if (two) tr.append(share(r.self, sum), share(r.self2, sum2), change(r.delta), change(r.deltaTotal));
		else tr.append(share(r.self, sum), share(r.total, sum));
		body.append(tr);
	}
	if (flame.functions > 300 || rows.length > 300)
		body.append(el("tr", {}, el("td", { colSpan: columns.length, class: "dim" }, "The heaviest of " + flame.functions + " functions; search finds others.")));
}

// --- filters, notes, downloads ---------------------------------------------------------------------
const LABEL_NAMES = { "process.executable": "Program", "thread.name": "Thread", pid: "Process", container: "Container", "thread.state": "State", wait: "Waits for" };
function showFilters() {
	const box = $("filters"), parts = [];
	for (const key of Object.keys(flame.labels).sort()) {
		const values = flame.labels[key], chosen = state.l[key];
		if (key === "host" || (values.length < 2 && !chosen)) continue;
		const select = el("select", { "aria-label": LABEL_NAMES[key] || key, onchange: (e) => {
			const l = Object.assign({}, state.l);
			if (e.target.value === "") delete l[key]; else l[key] = e.target.value;
			choose({ l, z: "" });
		} }, el("option", { value: "" }, "all"));
		const all = values.reduce((a, v) => a + v[1], 0);
		for (const [value, sum] of values) select.append(el("option", { value }, value.slice(0, 60) + "  " + percent(all ? sum / all : 0)));
		if (chosen && !values.some((v) => v[0] === chosen)) select.append(el("option", { value: chosen }, chosen));
		select.value = chosen || "";
		parts.push(el("label", { class: chosen ? "active" : "" }, LABEL_NAMES[key] || key, select));
	}
	for (const key in state.l)
		if (!flame.labels[key])
			parts.push(el("button", { type: "button", onclick: () => { const l = Object.assign({}, state.l); delete l[key]; choose({ l }); } }, (LABEL_NAMES[key] || key) + " = " + state.l[key] + " ✕"));
	parts.push(el("label", {}, el("input", { type: "checkbox", id: "kernel", checked: state.k, onchange: (e) => choose({ k: e.target.checked, z: "" }) }), "kernel frames"));
	box.replaceChildren(...parts);
}
function showNotes() {
	const notes = flame.notes, advised = advice(notes.join(" "));
	$("notes").lastElementChild.replaceChildren(...notes.map((n) => el("p", {}, n)), ...advised.map((a) => el("p", { class: "warn" }, a)),
		el("p", { class: "dim" }, "From the youngest of " + flame.files.reduce((a, b) => a + b, 0) + " profiles."));
}
function showDownloads() {
	const p = question(), menu = $("download-links"), names = { pprof: "pprof (.pb.gz)", folded: "folded stacks", svg: "picture (SVG)", tree: "call tree as text" };
	menu.replaceChildren();
	for (const format in names) {
		const q = new URLSearchParams(p);
		q.set("format", format);
		menu.append(el("a", { href: "/api/download?" + q, download: "" }, names[format]));
	}
	const quoted = (text) => "'" + text.replace(/'/g, "'\\''") + "'", pid = state.l.pid || "", exe = (services && services.services.find((s) => s.key === state.s) || {}).exe;
	menu.append(el("div", { class: "dim" }, "on this host:"), el("code", {}, "ebpfprofiler tree -s " + quoted(state.s || "*") + " -e " + state.t));
	// Windows have no times of single samples: those are recorded.
	const pids = (flame.labels.pid || []).filter((v) => /^[1-9]\d*$/.test(v[0])), all = pids.reduce((a, v) => a + v[1], 0), select = $("timeline-pid"), was = select.value;
	$("timeline").hidden = !pids.length || Boolean(exe && exe[0] === "[");
	if ($("timeline").hidden || document.activeElement === select) return;
	select.replaceChildren(...pids.map(([value, sum]) => el("option", { value }, value + "  " + percent(all ? sum / all : 0))));
	if (pids.some((v) => v[0] === was)) select.value = was;
	$("timeline-command").textContent = "sudo ebpfprofiler record -d 60 -F 99 -e cpu,offcpu --format firefox -p " + (/^\d+$/.test(pid) || !exe ? pid || pids[0][0] : "$(pidof -s " + quoted(exe) + ")");
}
const VIEWERS = { firefox: "https://profiler.firefox.com", perfetto: "https://ui.perfetto.dev" };
let recording = null;
async function recordTimeline() {
	if (recording) return recording.abort();
	const pid = $("timeline-pid").value, seconds = Math.min(Math.max(Math.round(Number($("timeline-seconds").value)) || 10, 1), 30), format = $("timeline-format").value;
	const who = (state.s ? $("title").textContent + ", " : "") + "process " + pid, began = Date.now(), say = (text) => { $("timeline-state").textContent = text; };
	const tell = () => { const s = Math.floor((Date.now() - began) / 1000); say("Recording " + who + ": " + (s < seconds ? s + " of " + seconds + " s" : "names are looked for")); };
	const timer = setInterval(tell, 250);
	recording = new AbortController();
	$("timeline-seconds").value = seconds;
	$("timeline-go").textContent = "Cancel";
	tell();
	try {
		const r = await fetch("/api/timeline?" + new URLSearchParams({ pid, seconds, format }), { signal: recording.signal });
		if (!r.ok) throw new Error((await r.json().catch(() => ({}))).error || r.statusText);
		const [, name] = /filename="([^"]+)"/.exec(r.headers.get("Content-Disposition") || "") || [0, "timeline.gz"], href = URL.createObjectURL(await r.blob());
		el("a", { href, download: name }).click();
		setTimeout(() => URL.revokeObjectURL(href), 60000);
		say(who + ": saved as " + name + "; open it at " + VIEWERS[format] + " (it is read in the browser, not sent).");
	} catch (e) {
		say(who + ": " + (e.name === "AbortError" ? "cancelled" : "not recorded: " + e.message));
	} finally {
		clearInterval(timer);
		recording = null;
		$("timeline-go").textContent = "Record";
	}
}

// --- putting it together -----------------------------------------------------------------------------
function showFlame() {
	const tree = parseTree(flame.nodes, flame.sides), name = state.s ? (services && (services.services.find((s) => s.key === state.s) || {}).title) || state.s : "All services";
	main.set(func ? parseTree(func.callees, func.sides) : tree, func ? func.symbols : flame.symbols, func ? func.totals : flame.totals, flame.unit);
	$("callers-box").hidden = $("callees-head").hidden = $("back").hidden = !func;
	if (func) {
		callers.set(parseTree(func.callers, func.sides), func.symbols, func.totals, func.unit);
		callers.draw();
	}
	$("title").textContent = func ? func.name : name;
	const of = (k) => amount(flame.totals[k], flame.unit);
	$("total").textContent = typeName(state.t) + ": " + of(0) + (flame.sides > 1 ? " now, " + of(1) + " then" : "") +
		(func && main.tree.n ? ", of which " + percent(main.tree.total[0][0] / Math.max(flame.totals[0], 1)) + " in " + func.name : "");
	const none = !main.tree.n;
	$("flame").hidden = none;
	$("empty").hidden = !none;
	$("empty").textContent = Object.keys(state.l).length ? "No sample has these labels." : isWait(state.t) ? "Nothing waited here in this time." : "Nothing ran here in this time.";
	let why = "";
	if (flame.left_out) why = flame.left_out + " older profiles were left out: choose less time for all of it.";
	else if (flame.cut) why = "Not all stacks found room; the heaviest are shown. Choose less time or one service.";
	say(why || (services && services.unread ? "Reading older profiles: " + services.unread + " to go." : ""));
	if (state.z && !func) main.zoom = main.find(state.z);
	search(); showCrumbs(); showFilters(); showNotes(); showDownloads();
}
async function loadServices() {
	const [from, to] = range(), [a, b] = stripRange();
	const p = new URLSearchParams({ from: Math.floor(from), to: Math.ceil(to), type: state.t, service: state.s || "*", strip_from: a, strip_to: b });
	services = await get("/api/services", p);
	Object.assign(strip, services.strip);
	showServices(); drawStrip();
	$("range").textContent = when(from, to);
	if (services.unread) setTimeout(() => loadServices().catch(() => 0), 500);
}
async function load() {
	const mine = ++asked;
	document.body.setAttribute("aria-busy", "true");
	try {
		status = await get("/api/status", "");
		status.skew = status.now - Date.now();
		if (!services || !state.last) await loadServices();
		const [, f, fn] = await Promise.all([loadServices(), get("/api/flame", question()),
			state.f ? get("/api/function", (() => { const p = question(); p.set("name", state.f); return p; })()) : null]);
		if (mine !== asked) return;
		flame = f; func = fn;
		showStatus(); showControls(); showFlame();
		document.body.dataset.loaded = String(mine);
	} catch (e) {
		if (mine === asked) say("Cannot load: " + e.message);
	} finally {
		if (mine === asked) document.body.removeAttribute("aria-busy");
	}
	clearTimeout(timer);
	timer = setTimeout(refresh, Math.max((status ? status.window_s : 10) * 1000, 5000));
}
// New windows are shown as they come, but nothing moves under somebody who looks closer.
function refresh() {
	if (document.hidden || state.from || comparing() || main.zoom >= 0 || func || main.focus >= 0) { timer = setTimeout(refresh, 5000); return; }
	load();
}
function showControls() {
	$("last").value = state.from ? "-1" : String(state.last);
	$("last").querySelector("[value='-1']").hidden = !state.from;
	$("compare").value = state.cmp;
	$("service2").hidden = state.cmp !== "service";
	$("norm-label").hidden = !comparing();
	$("norm").checked = state.norm;
	if ($("search").value !== state.q) $("search").value = state.q;
}
function choose(changes) {
	Object.assign(state, changes);
	if ("s" in changes || "t" in changes || "from" in changes || "last" in changes) main.focus = -1;
	writeAddress(true); showControls(); drawStrip(); load();
}
function showFunction(name) { choose({ f: name, z: "" }); }

$("last").addEventListener("change", (e) => choose({ last: Number(e.target.value), from: 0, to: 0 }));
$("compare").addEventListener("change", (e) => {
	const cmp = e.target.value;
	if (cmp === "strip" && !state.from2) { state.cmp = cmp; showControls(); return say("Drag over the strip above with Shift held down to choose the range to compare with."); }
	choose({ cmp, s2: cmp === "service" ? state.s2 : "", from2: cmp === "strip" ? state.from2 : 0, to2: cmp === "strip" ? state.to2 : 0 });
});
$("service2").addEventListener("change", (e) => choose({ s2: e.target.value }));
$("norm").addEventListener("change", (e) => { state.norm = e.target.checked; writeAddress(true); showFlame(); });
$("search").addEventListener("input", (e) => { state.q = e.target.value; writeAddress(); search(); });
$("zoom-out").addEventListener("click", () => { callers.zoomTo(-1); main.zoomTo(-1); });
$("back").addEventListener("click", () => choose({ f: "", z: "" }));
$("timeline-go").addEventListener("click", recordTimeline);
$("details-button").addEventListener("click", () => {
	const d = $("details");
	d.hidden = !d.hidden;
	$("details-button").setAttribute("aria-expanded", String(!d.hidden));
});
document.addEventListener("keydown", (e) => {
	if (e.key === "/" && !/^(INPUT|SELECT|TEXTAREA)$/.test(e.target.tagName)) { e.preventDefault(); $("search").focus(); }
	if (e.key === "Escape" && e.target === $("search")) { state.q = $("search").value = ""; writeAddress(); search(); }
});
document.addEventListener("click", (e) => { if (!$("download").contains(e.target)) $("download").open = false; });
addEventListener("popstate", () => { readAddress(); showControls(); load(); });
let resizing = 0;
addEventListener("resize", () => { cancelAnimationFrame(resizing); resizing = requestAnimationFrame(() => { drawStrip(); main.draw(); if (func) callers.draw(); }); });
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { drawStrip(); if (flame) showFlame(); });
readAddress();
showControls();
load();
