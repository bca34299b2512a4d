// SPDX-License-Identifier: Apache-2.0
// Drives the page as a person would: node page.mjs URL SHOTS WIDE_URL, with playwright-core in NODE_PATH.
// Prints `ok NAME` / `not ok NAME: why`; pictures go to SHOTS. WIDE_URL: a store of 50,000 distinct frames.
import { createRequire } from "module";
const { chromium } = createRequire(process.env.PLAYWRIGHT + "/")("playwright-core");
const [base, shots, wide] = process.argv.slice(2);
const browser = await chromium.launch({ executablePath: process.env.CHROMIUM || "/usr/bin/chromium", args: ["--no-sandbox"] });
let errors = [];

async function open(query, o = {}) {
	const context = await browser.newContext({ viewport: { width: o.width || 1280, height: o.height || 800 }, colorScheme: o.dark ? "dark" : "light", acceptDownloads: true });
	const page = await context.newPage();
	page.setDefaultTimeout(20000);
	page.on("pageerror", (e) => errors.push("error: " + e.message));
	page.on("console", (m) => { if (m.type() === "error") errors.push("console: " + m.text()); });
	page.on("dialog", (d) => { errors.push("dialog: " + d.message()); d.dismiss(); });
	// Nothing but the daemon is ever asked.
	page.on("request", (r) => { if (!r.url().startsWith(o.base || base)) errors.push("foreign request: " + r.url()); });
	await page.goto((o.base || base) + query);
	await loaded(page);
	return page;
}
const loaded = (page) => page.waitForFunction(() => document.body.dataset.loaded && !document.body.hasAttribute("aria-busy"));
async function after(page, act) {
	const before = await page.evaluate(() => document.body.dataset.loaded);
	await act();
	await page.waitForFunction((b) => document.body.dataset.loaded !== b && !document.body.hasAttribute("aria-busy"), before);
}
async function test(name, fn) {
	errors = [];
	let page;
	try {
		page = await fn();
		if (errors.length) throw new Error(errors.join("; "));
		console.log("ok page-" + name);
	} catch (e) {
		console.log("not ok page-" + name + ": " + String(e.message).split("\n").slice(0, 4).join(" | "));
	}
	if (page) {
		await page.screenshot({ path: shots + "/" + name + ".png" }).catch(() => 0);
		await page.context().close();
	}
}
function must(what, text) { if (!what) throw new Error(text); }
const rows = (page) => page.$$eval("#functions tbody tr", (trs) => trs.map((tr) => [...tr.cells].map((c) => c.textContent)));
const servicesOf = (page) => page.$$eval("#services tbody tr", (trs) => trs.map((tr) => tr.querySelector(".name").textContent));
const value = (text) => parseFloat(text.replace("−", "-").replace("–", "0"));

await test("first-look", async () => {
	const page = await open("");
	const names = await servicesOf(page);
	must(names.includes("ratio") && names.includes("naps"), "services: " + names);
	for (const what of ["rate", "cost", "lost", "stacks"]) must((await page.textContent("#facts")).includes(what), "header lacks " + what);
	must(Number(await page.getAttribute("#flame", "data-frames")) > 20, "no flame graph");
	await page.click("#details-button");
	must((await page.textContent("#details")).includes("budget"), "no details");
	return page;
});
await test("service-with-cpu-share-and-badge", async () => {
	const page = await open("");
	const row = page.locator("#services tbody tr", { hasText: "ratio" }).first();
	// It runs all the time: a CPU, or what it gets of one.
	must(value((await row.locator("td").nth(1).textContent())) > 0.2, "share: " + await row.textContent());
	const wait = await page.locator("#services tbody tr", { hasText: "naps" }).first().locator("td").nth(2).textContent();
	must(/\d/.test(wait), "waiting: " + wait);
	if (process.env.PYTHON) must((await page.locator("#services .badge", { hasText: "python" }).count()) > 0, "no badge");
	await after(page, () => row.locator(".name").click());
	must(page.url().includes("s=ratio"), page.url());
	must((await rows(page)).some((r) => r[0] === "heavy"), "no function heavy");
	return page;
});
await test("services-sort-by-name-and-waiting", async () => {
	const page = await open("");
	await page.click("#services thead button:has-text('Service')");
	const names = (await servicesOf(page)).slice(1), sorted = [...names].sort((a, b) => (a < b ? 1 : -1));
	must(JSON.stringify(names) === JSON.stringify(sorted) || JSON.stringify(names) === JSON.stringify(sorted.reverse()), "not sorted: " + names);
	await page.click("#services thead button:has-text('Waiting')");
	must((await page.getAttribute("#services thead th:nth-child(3)", "aria-sort")) === "descending", "aria-sort");
	return page;
});
await test("shares-are-70-to-30", async () => {
	const page = await open("?s=ratio&last=0&sort=total"), r = await rows(page), total = (n) => value(r.find((x) => x[0] === n)[2]);
	const heavy = total("heavy") / (total("heavy") + total("light"));
	must(Math.abs(heavy - 0.7) < 0.08, "heavy " + heavy);
	return page;
});
await test("zoom-by-click-keyboard-and-address", async () => {
	const page = await open("?s=ratio&last=0");
	const flame = page.locator("#flame");
	await flame.focus();
	for (const k of ["ArrowDown", "ArrowDown", "ArrowDown", "Enter"]) await page.keyboard.press(k);
	must((await page.textContent("#crumbs")).includes("›"), "no crumbs");
	must((await page.textContent("#focus")).includes("%"), "nothing for screen readers");
	must(page.url().includes("z="), "zoom not in the address");
	const crumbs = await page.textContent("#crumbs"), again = await open(new URL(page.url()).search);
	must((await again.textContent("#crumbs")) === crumbs, "zoom not restored");
	await again.context().close();
	await page.keyboard.press("Escape");
	must((await page.textContent("#crumbs")) === "", "still zoomed");
	const box = await flame.boundingBox();
	await page.mouse.click(box.x + 20, box.y + 18 * 3.5);
	must(await page.isVisible("#zoom-out"), "a click does not zoom");
	await page.mouse.move(box.x + 30, box.y + 9);
	must((await page.textContent("#tip")).includes("%"), "no tip");
	return page;
});
await test("search-with-the-share-matched", async () => {
	const page = await open("?s=ratio&last=0");
	await page.keyboard.press("/");
	await page.keyboard.type("heavy");
	const share = value((await page.textContent("#matched")).replace("matched ", ""));
	const found = await rows(page), total = value(found.find((r) => r[0] === "heavy")[2]);
	// The daemon has it as the function's total.
	must(share > 0 && Math.abs(share - total) <= 1, "matched " + share + ", total " + total);
	must(found.every((r) => r[0].includes("heavy") || r.length < 2), "table not filtered");
	must(page.url().includes("q=heavy"), page.url());
	return page;
});
await test("callers-and-callees", async () => {
	const page = await open("?s=ratio&last=0");
	await after(page, () => page.locator("#functions .name", { hasText: /^spin$/ }).click());
	must(await page.isVisible("#callers"), "no callers");
	must(Number(await page.getAttribute("#callers", "data-frames")) >= 3, "callers");
	must((await page.textContent("#total")).includes("in spin"), await page.textContent("#total"));
	await page.screenshot({ path: shots + "/callers.png" });
	await after(page, () => page.click("#back"));
	must(!(await page.isVisible("#callers")), "still there");
	return page;
});
await test("off-cpu", async () => {
	const page = await open("?s=naps&last=0");
	await after(page, () => page.click("#types button:has-text('Off CPU')"));
	const r = await rows(page);
	// By its own name once its tables are there, which a busy machine has late; by the kernel's at once.
	must(r.some((x) => (x[0] === "nap" || x[0] === "hrtimer_nanosleep") && value(x[2]) > 50), "no nap: " + JSON.stringify(r.slice(0, 5)));
	must((await page.textContent("#filters")).includes("kernel frames"), "no filters");
	return page;
});
await test("filters-thread-and-kernel", async () => {
	const page = await open("?last=0&t=offcpu&s=naps");
	const has = async () => (await rows(page)).some((r) => /^(do_|__x64_sys|hrtimer|schedule)/.test(r[0]));
	must(await has(), "no kernel frames at first");
	await after(page, () => page.click("#kernel"));
	must(!(await has()), "kernel frames stay");
	const all = await open("?last=0"), thread = all.locator("#filters select[aria-label=Program]");
	await after(all, () => thread.selectOption("ratio"));
	must((await all.textContent("#total")).includes("CPU"), "nothing");
	must((await rows(all)).some((r) => r[0] === "heavy"), "filter lost it");
	must(all.url().includes("l.process.executable=ratio"), all.url());
	await all.context().close();
	return page;
});
await test("range-by-drag-on-the-strip", async () => {
	const page = await open("?last=900"), box = await page.locator("#strip").boundingBox();
	const drag = (a, b) => after(page, async () => {
		await page.mouse.move(box.x + box.width * a, box.y + 20);
		await page.mouse.down();
		await page.mouse.move(box.x + box.width * b, box.y + 20, { steps: 4 });
		await page.mouse.up();
	});
	await drag(0.9, 0.999);
	must(/from=\d+/.test(page.url()) && (await page.inputValue("#last")) === "-1", page.url());
	await page.keyboard.down("Shift");
	await drag(0.75, 0.85);
	await page.keyboard.up("Shift");
	must(page.url().includes("cmp=strip") && page.url().includes("from2="), page.url());
	return page;
});
await test("comparison-of-two-services", async () => {
	const page = await open("?s=ratio&last=0");
	await page.selectOption("#compare", "service");
	if (!page.url().includes("cmp=service")) await loaded(page);
	await after(page, () => page.selectOption("#service2", "other"));
	const head = await page.textContent("#functions thead");
	must(head.includes("± self"), head);
	// `other` does only the light half.
	const heavy = (await rows(page)).find((r) => r[0] === "heavy");
	must(value(heavy[4]) > 0, "heavy " + heavy);
	await page.uncheck("#norm");
	must(/ (ms|s|min)/.test((await rows(page)).find((r) => r[0] === "heavy")[4]), "absolute values");
	await page.check("#norm");
	return page;
});
await test("downloads", async () => {
	const page = await open("?s=ratio&last=0");
	for (const [label, pattern] of [["folded", /main;heavy;spin \d+/], ["call tree", /heavy/], ["SVG", /<svg [^]*heavy/], ["pprof", /^\x1f\x8b/]]) {
		await page.evaluate(() => { document.getElementById("download").open = true; });
		const [d] = await Promise.all([page.waitForEvent("download"), page.click("#download-menu a:has-text('" + label + "')")]);
		const path = shots + "/download." + d.suggestedFilename().split(".").slice(1).join(".");
		await d.saveAs(path);
		const text = (await import("fs")).readFileSync(path, "latin1");
		must(pattern.test(text), label + ": " + text.slice(0, 200));
	}
	return page;
});
await test("hostile-names-are-text", async () => {
	const page = await open("?last=0");
	const names = await servicesOf(page), evil = names.find((n) => n.includes("onerror"));
	must(evil && evil.includes("<img"), "the evil process is not listed: " + names);
	must((await page.$$("img, script:not([src='/page.js']), iframe")).length === 0, "markup came alive");
	await after(page, () => page.locator("#services .name", { hasText: "onerror" }).click());
	must((await page.$$("img")).length === 0, "markup came alive");
	return page;
});
await test("dark", async () => {
	const page = await open("?s=ratio", { dark: true });
	const bg = await page.evaluate(() => getComputedStyle(document.body).backgroundColor);
	must(bg.match(/\d+/g).map(Number).every((c) => c < 60), bg);
	return page;
});
await test("narrow", async () => {
	const page = await open("?s=ratio", { width: 390, height: 844 });
	const over = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
	must(over <= 0, "scrolls sideways by " + over);
	for (const id of ["#types", "#strip", "#search", "#functions", "#flame"]) must(await page.locator(id).isVisible(), id);
	return page;
});
await test("names-for-screen-readers", async () => {
	const page = await open("");
	const bad = await page.evaluate(() => [...document.querySelectorAll("button, select, input, canvas, table")].filter((e) => e.offsetParent && !(
		e.textContent.trim() || e.getAttribute("aria-label") || e.title || (e.labels && e.labels.length) || e.caption)).map((e) => e.outerHTML.slice(0, 80)));
	must(!bad.length, bad.join("; "));
	// All that a mouse reaches a keyboard does.
	await page.evaluate(() => document.activeElement && document.activeElement.blur());
	const seen = new Set();
	for (let i = 0; i < 12; i++) { await page.keyboard.press("Tab"); seen.add(await page.evaluate(() => document.activeElement.id || document.activeElement.parentElement.id)); }
	for (const id of ["details-button", "types", "last", "compare", "strip"]) must(seen.has(id), "Tab does not reach " + id + ": " + [...seen]);
	return page;
});
if (wide) await test("50000-frames-within-300-ms", async () => {
	const page = await open("?last=0&s=wide&t=cpu&max=60000", { base: wide });
	const n = Number(await page.getAttribute("#flame", "data-frames"));
	must(n >= 50000, n + " frames");
	// Parsed, laid out and painted, table and all: CPU time of the page's thread, since others share this machine.
	const cdp = await page.context().newCDPSession(page);
	await cdp.send("Performance.enable", { timeDomain: "threadTicks" });
	const cpu = async () => (await cdp.send("Performance.getMetrics")).metrics.find((m) => m.name === "TaskDuration").value * 1000;
	const took = [], wall = [];
	for (let i = 0; i < 3; i++) {
		const before = await cpu();
		wall.push(await page.evaluate(() => { const t = performance.now(); showFlame(); main.canvas.getContext("2d").getImageData(0, 0, 1, 1); return Math.round(performance.now() - t); }));
		took.push(Math.round((await cpu()) - before));
	}
	console.log("# " + n + " frames: CPU " + took.join(", ") + " ms, by the clock " + wall.join(", ") + " ms");
	must(Number(await page.getAttribute("#flame", "data-drawn")) > 500, "next to nothing was drawn");
	must(Math.min(...took) > 0 && Math.min(...took) < 300, "took " + took + " ms");
	return page;
});
await browser.close();
