// SPDX-License-Identifier: Apache-2.0
// Chromium by its own DevTools protocol, over the pipe that --remote-debugging-pipe opens as
// descriptors 3 and 4: each message is JSON and ends with a zero byte. No package, no port.
// Domains and commands: chromedevtools.github.io/devtools-protocol.
import { spawn } from "child_process";
import { mkdtempSync, rmSync, writeFileSync } from "fs";

const PATIENCE = 20000; // ms, for whatever is waited for
const sleep = (ms) => new Promise((r) => setTimeout(r, ms));

async function until(what, probe) {
	const end = Date.now() + PATIENCE;
	for (;;) {
		const got = await probe();
		if (got) return got;
		if (Date.now() > end) throw new Error("waited " + PATIENCE / 1000 + " s for " + what);
		await sleep(15);
	}
}

class Connection {
	constructor(to, from) {
		Object.assign(this, { to, last: 0, calls: new Map(), pages: new Map(), on: () => {} });
		let rest = Buffer.alloc(0);
		from.on("data", (data) => {
			rest = Buffer.concat([rest, data]);
			for (let end; (end = rest.indexOf(0)) >= 0; rest = rest.subarray(end + 1)) this.take(JSON.parse(rest.toString("utf8", 0, end)));
		});
		from.on("close", () => { for (const [, c] of this.calls) c.no(new Error("the browser ended")); });
		to.on("error", () => 0);
	}
	take(m) {
		const call = this.calls.get(m.id);
		if (!m.id) return (this.pages.get(m.sessionId) || this.on)(m.method, m.params);
		this.calls.delete(m.id);
		if (m.error) call.no(new Error(call.method + ": " + m.error.message)); else call.yes(m.result);
	}
	send(method, params = {}, sessionId) {
		return new Promise((yes, no) => {
			this.calls.set(++this.last, { yes, no, method });
			this.to.write(JSON.stringify({ id: this.last, method, params, sessionId }) + "\0");
		});
	}
}

const KEYS = { Enter: [13, "\r"], Escape: [27], Tab: [9], ArrowLeft: [37], ArrowUp: [38], ArrowRight: [39], ArrowDown: [40], Shift: [16] };

// What the page's own frame is asked; the first that fits, of those that are shown where it says so.
const inPage = {
	find: (css, text, exact) => [...document.querySelectorAll(css)].find((e) => text === undefined || (exact ? e.textContent === text : e.textContent.includes(text))),
};

export class Page {
	constructor(browser, context, session) { Object.assign(this, { browser, context, session, modifiers: 0 }); }
	send(method, params) { return this.browser.connection.send(method, params, this.session); }
	// fn is sent as text: it sees its arguments, find() and the page, nothing of here.
	async eval(fn, ...args) {
		const r = await this.send("Runtime.evaluate", { awaitPromise: true, returnByValue: true, userGesture: true,
			expression: `(() => { const find = ${inPage.find}; return (${fn})(...${JSON.stringify(args)}); })()` });
		if (r.exceptionDetails) throw new Error(r.exceptionDetails.exception?.description || r.exceptionDetails.text);
		return r.result.value;
	}
	wait(what, fn, ...args) { return until(what, () => this.eval(fn, ...args).catch(() => 0)); }
	text(css) { return this.eval((c) => find(c).textContent, css); }
	value(css) { return this.eval((c) => find(c).value, css); }
	attribute(css, name) { return this.eval((c, n) => find(c).getAttribute(n), css, name); }
	count(css) { return this.eval((c) => document.querySelectorAll(c).length, css); }
	visible(css) { return this.eval((c) => { const e = find(c), r = e && e.getBoundingClientRect(); return !!r && r.width > 0 && r.height > 0 && getComputedStyle(e).visibility !== "hidden"; }, css); }
	box(css, text, exact) {
		return this.eval((c, t, x) => {
			const e = find(c, t === null ? undefined : t, x);
			if (!e) throw new Error("no " + c + (t === null ? "" : " with '" + t + "'"));
			e.scrollIntoView({ block: "nearest" });
			const r = e.getBoundingClientRect();
			return { x: r.x, y: r.y, width: r.width, height: r.height };
		}, css, text === undefined ? null : text, exact);
	}
	// What lies in the middle of it gets the click, as under a person's hand.
	async click(css, text, exact) { const b = await this.box(css, text, exact); await this.clickAt(b.x + b.width / 2, b.y + b.height / 2); }
	async clickAt(x, y) { await this.mouse("mouseMoved", x, y); await this.mouse("mousePressed", x, y); await this.mouse("mouseReleased", x, y); }
	mouse(type, x, y, buttons = 0) {
		const press = type !== "mouseMoved";
		return this.send("Input.dispatchMouseEvent", { type, x, y, button: press || buttons ? "left" : "none", buttons: type === "mousePressed" ? 1 : buttons,
			clickCount: press ? 1 : 0, modifiers: this.modifiers });
	}
	async drag(x0, y0, x1, y1) {
		await this.mouse("mouseMoved", x0, y0);
		await this.mouse("mousePressed", x0, y0);
		for (let i = 1; i <= 4; i++) await this.mouse("mouseMoved", x0 + (x1 - x0) * i / 4, y0 + (y1 - y0) * i / 4, 1);
		await this.mouse("mouseReleased", x1, y1);
	}
	async press(key) {
		const [code, text = key.length === 1 ? key : undefined] = KEYS[key] || [key.toUpperCase().charCodeAt(0)];
		const k = { key, code: key, windowsVirtualKeyCode: code, modifiers: this.modifiers };
		await this.send("Input.dispatchKeyEvent", { type: text ? "keyDown" : "rawKeyDown", text, ...k });
		await this.send("Input.dispatchKeyEvent", { type: "keyUp", ...k });
	}
	async type(text) { for (const c of text) await this.press(c); }
	shift(down) { this.modifiers = down ? 8 : 0; }
	// As if chosen from the list: the change is told to the page.
	select(css, value) {
		return this.eval((c, v) => {
			const e = find(c);
			if (![...e.options].some((o) => o.value === v)) throw new Error("no option '" + v + "' in " + c + ": " + [...e.options].map((o) => o.value));
			e.value = v;
			e.dispatchEvent(new Event("input", { bubbles: true }));
			e.dispatchEvent(new Event("change", { bubbles: true }));
		}, css, value);
	}
	async screenshot(path) { writeFileSync(path, Buffer.from((await this.send("Page.captureScreenshot", { format: "png" })).data, "base64")); }
	// Bytes as they would be saved, and the name that the page gives them.
	async download(act) {
		const before = this.browser.downloads.length;
		await act();
		return until("a download", () => this.browser.downloads.slice(before).find((d) => d.done));
	}
	close() { return this.browser.connection.send("Target.disposeBrowserContext", { browserContextId: this.context }); }
}

export class Browser {
	static async launch(program, downloads) {
		const home = mkdtempSync("/tmp/chromium-"), b = new Browser();
		const child = spawn(program, ["--headless=new", "--no-sandbox", "--remote-debugging-pipe", "--user-data-dir=" + home, "--no-first-run", "--disable-gpu",
			"--disable-dev-shm-usage", "--disable-background-networking", "--disable-component-update", "--disable-extensions", "--hide-scrollbars", "--mute-audio"],
		{ stdio: ["ignore", "ignore", "pipe", "pipe", "pipe"], detached: true });
		let words = "";
		child.stderr.on("data", (d) => { words = (words + d).slice(-2000); });
		const ended = new Promise((r) => { child.on("close", r); child.on("error", (e) => { words += e.message; r(); }); });
		Object.assign(b, { child, home, ended, downloads: [], connection: new Connection(child.stdio[3], child.stdio[4]) });
		b.connection.on = (method, p) => {
			if (method === "Browser.downloadWillBegin") b.downloads.push({ guid: p.guid, name: p.suggestedFilename, path: downloads + "/" + p.guid, done: false });
			if (method === "Browser.downloadProgress" && p.state === "completed") for (const d of b.downloads) d.done ||= d.guid === p.guid;
		};
		b.folder = downloads;
		await Promise.race([b.connection.send("Browser.getVersion"), ended, sleep(PATIENCE)]).then((v) => {
			if (!v) throw new Error("no answer from " + program + ": " + words);
			b.version = v.product;
		});
		return b;
	}
	// A page of its own store; `heard` is told each error, dialog and foreign address.
	async open(url, o, heard) {
		const c = this.connection, { browserContextId } = await c.send("Target.createBrowserContext");
		await c.send("Browser.setDownloadBehavior", { behavior: "allowAndName", browserContextId, downloadPath: this.folder, eventsEnabled: true });
		const { targetId } = await c.send("Target.createTarget", { url: "about:blank", browserContextId });
		const { sessionId } = await c.send("Target.attachToTarget", { targetId, flatten: true }), page = new Page(this, browserContextId, sessionId);
		const origin = new URL(url).origin;
		c.pages.set(sessionId, (method, p) => {
			if (method === "Runtime.exceptionThrown") heard("error: " + (p.exceptionDetails.exception?.description || p.exceptionDetails.text));
			if (method === "Runtime.consoleAPICalled" && p.type === "error") heard("console: " + p.args.map((a) => a.value || a.description).join(" "));
			if (method === "Log.entryAdded" && p.entry.level === "error") heard("log: " + p.entry.text + " " + (p.entry.url || ""));
			if (method === "Page.javascriptDialogOpening") { heard("dialog: " + p.message); page.send("Page.handleJavaScriptDialog", { accept: false }); }
			if (method === "Network.requestWillBeSent" && !p.request.url.startsWith(origin + "/")) heard("foreign request: " + p.request.url);
		});
		for (const domain of ["Page", "Runtime", "Log", "Network"]) await page.send(domain + ".enable");
		await page.send("Emulation.setDeviceMetricsOverride", { width: o.width || 1280, height: o.height || 800, deviceScaleFactor: 1, mobile: false });
		await page.send("Emulation.setEmulatedMedia", { features: [{ name: "prefers-color-scheme", value: o.dark ? "dark" : "light" }] });
		const r = await page.send("Page.navigate", { url });
		if (r.errorText) throw new Error(url + ": " + r.errorText);
		return page;
	}
	async close() {
		this.connection.send("Browser.close").catch(() => 0);
		await Promise.race([this.ended, sleep(3000)]);
		try { process.kill(-this.child.pid, "SIGKILL"); } catch (e) { /* it has ended */ }
		rmSync(this.home, { recursive: true, force: true, maxRetries: 5, retryDelay: 100 });
	}
}
