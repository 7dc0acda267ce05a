// Checks of the web's globals, after the web platform tests. Each would fail on a stub.
const all = new Map<string, () => unknown>();
const test = (name: string, fn: () => unknown) => all.set(name, fn);
export const names = () => [...all.keys()];
export const run = async (name: string) => {
	await all.get(name)!();
	return "ok";
};

function show(v: unknown): string {
	return JSON.stringify(v, (_, x) => (typeof x === "bigint" ? `${x}n` : x === undefined ? "undefined" : x));
}
function eq(got: unknown, want: unknown) {
	if (show(got) !== show(want)) throw new Error(`got ${show(got)}, want ${show(want)}`);
}
async function fails(fn: () => unknown, name: string, text = "") {
	try {
		await fn();
	} catch (e: any) {
		if (e.name !== name || !String(e.message).includes(text)) throw new Error(`failed with ${e.name}: ${e.message}`);
		return e;
	}
	throw new Error(`did not fail with ${name}`);
}
const bytes = (...b: number[]) => new Uint8Array(b);

test("URL: parts", () => {
	const u = new URL("https://user:pa%20ss@EXAMPLE.com:8443/a/./b/../c%7E?x=1&y=a b#frag");
	eq(u.href, "https://user:pa%20ss@example.com:8443/a/c%7E?x=1&y=a%20b#frag");
	eq([u.protocol, u.username, u.password, u.host, u.hostname, u.port], ["https:", "user", "pa%20ss", "example.com:8443", "example.com", "8443"]);
	eq([u.pathname, u.search, u.hash, u.origin], ["/a/c%7E", "?x=1&y=a%20b", "#frag", "https://example.com:8443"]);
});
test("URL: relative", () => {
	const r = (a: string, b: string) => new URL(a, b).href;
	eq(r("../x?q#h", "http://a.b/c/d/e"), "http://a.b/c/x?q#h");
	eq(r("//c.d/e", "https://a.b/"), "https://c.d/e");
	eq(r("?q", "http://a.b/c/d?x#y"), "http://a.b/c/d?q");
	eq(r("", "http://a.b/c#d"), "http://a.b/c");
	eq(r("\\x\\y", "http://a.b/c"), "http://a.b/x/y");
});
test("URL: hosts", () => {
	const h = (s: string) => new URL(s).host;
	eq(h("http://0x7f.1/"), "127.0.0.1");
	eq(h("http://[2001:DB8::0:1]:80/"), "[2001:db8::1]");
	eq(h("http://bücher.example/"), "xn--bcher-kva.example");
	eq(h("http://a.b:80"), "a.b");
	eq(new URL("file:///C|/x").href, "file:///C:/x");
	eq(new URL("data:text/plain,hi").pathname, "text/plain,hi");
	eq(new URL("data:x").origin, "null");
});
test("URL: refuses", async () => {
	for (const s of ["/x", "http://", "http://a b/", "http://a.b:99999/", "http://[::1", "http://1.2.3.400/"]) {
		await fails(() => new URL(s), "TypeError");
		eq(URL.canParse(s), false);
		eq(URL.parse(s), null);
	}
	eq(URL.canParse("x", "http://a"), true);
});
test("URL: setters", () => {
	const u = new URL("http://a.b/c");
	u.protocol = "https";
	u.port = "443";
	u.pathname = "/x y";
	u.search = "q=ü";
	u.hash = "h";
	u.host = "c.d:81";
	eq(u.href, "https://c.d:81/x%20y?q=%C3%BC#h");
	u.searchParams.append("z", "1 2");
	eq(u.href, "https://c.d:81/x%20y?q=%C3%BC&z=1+2#h");
	u.search = "";
	eq([...u.searchParams], []);
	eq(String(u), JSON.parse(JSON.stringify(u)));
	u.href = "ftp://e.f/";
	eq(u.host, "e.f");
});
test("URL: the quick way and the long way agree", () => {
	for (const s of ["http://a.b", "https://a.b/c/d?e=f&g#h", "https://a-b.c:8080/x_y~z/%41?q", "http://localhost/", "https://a.b/c//d/", "https://a.b?x", "https://a.b#y", "https://a.b:443/", "http://127.0.0.1:80/x", "https://a.b/.well-known/x", "https://a.b/c/..", "https://a.b/c/%2e%2e/d", "https://A.b/", "https://a.b/c'd?e'f", "http://1.2.3/"]) {
		const quick = new URL(s);
		const long = new URL(" " + s); // the space is stripped, but not by the quick way
		for (const k of ["href", "protocol", "host", "hostname", "port", "pathname", "search", "hash", "origin", "username"] as const) eq([s, k, quick[k]], [s, k, long[k]]);
		eq(String(quick.searchParams), String(long.searchParams));
	}
});
test("URLSearchParams", () => {
	const p = new URLSearchParams("?a=1&b=2&a=3&c=%20+%F0%9F%98%80&&d");
	eq([...p], [["a", "1"], ["b", "2"], ["a", "3"], ["c", "  😀"], ["d", ""]]);
	eq(p.getAll("a"), ["1", "3"]);
	p.delete("a", "1");
	p.set("b", "x&y=z");
	p.append("é", "~*-._");
	p.sort();
	eq(String(p), "a=3&b=x%26y%3Dz&c=++%F0%9F%98%80&d=&%C3%A9=%7E*-._");
	eq([p.has("a", "3"), p.has("a", "4"), p.size], [true, false, 5]);
	eq(String(new URLSearchParams({ a: "1", b: "2" })), "a=1&b=2");
	eq(String(new URLSearchParams([["a", "1"]])), "a=1");
});

test("TextEncoder", () => {
	const e = new TextEncoder();
	eq([...e.encode("aé€😀\ud800")], [97, 195, 169, 226, 130, 172, 240, 159, 152, 128, 239, 191, 189]);
	const dest = new Uint8Array(4);
	eq(e.encodeInto("a€b€", dest), { read: 2, written: 4 });
	eq([...dest], [97, 226, 130, 172]);
	eq(e.encoding, "utf-8");
	eq([...e.encode()], []);
});
test("TextDecoder: replacement", () => {
	const d = (b: Uint8Array, o?: object) => new TextDecoder("utf-8", o).decode(b);
	eq(d(bytes(0xef, 0xbb, 0xbf, 97)), "a");
	eq(d(bytes(0xef, 0xbb, 0xbf, 97), { ignoreBOM: true }), "\ufeffa");
	eq(d(bytes(0xe2, 0x82, 97)), "\ufffda");
	eq(d(bytes(0xf0, 0x9f, 0x98)), "\ufffd");
	eq(d(bytes(0xed, 0xa0, 0x80)), "\ufffd\ufffd\ufffd");
	eq(d(bytes(0xc0, 0x80)), "\ufffd\ufffd");
	eq(d(bytes(0xf8, 97)), "\ufffda");
	eq(d(bytes(0x61, 0, 0x62)), "a\0b");
	eq(d(new Uint8Array(0)), "");
	eq(new TextDecoder().decode(new DataView(bytes(1, 97, 98, 2).buffer, 1, 2)), "ab");
});
test("TextDecoder: fatal", async () => {
	await fails(() => new TextDecoder("utf-8", { fatal: true }).decode(bytes(0xff)), "TypeError");
	eq(new TextDecoder("utf8", { fatal: true }).decode(bytes(0xc3, 0xa9)), "é");
	await fails(() => new TextDecoder("shift_jis"), "RangeError", "shift_jis");
});
test("TextDecoder: stream", () => {
	const d = new TextDecoder();
	let s = "";
	for (const b of [0xef, 0xbb, 0xbf, ...new TextEncoder().encode("é😀x")]) s += d.decode(bytes(b), { stream: true });
	eq(s + d.decode(), "é😀x");
	eq(d.decode(bytes(0xe2, 0x82), { stream: true }) + d.decode(), "\ufffd");
	eq(new TextDecoder("utf-16le").decode(bytes(0xff, 0xfe, 0x3d, 0xd8, 0x00, 0xde)), "😀");
});

test("Event and EventTarget", () => {
	const t = new EventTarget();
	const log: string[] = [];
	const f = (e: Event) => log.push(e.type + (e.target === t));
	t.addEventListener("a", f);
	t.addEventListener("a", f);
	t.addEventListener("a", { handleEvent: () => log.push("object") }, { once: true });
	eq(t.dispatchEvent(new Event("a")), true);
	t.dispatchEvent(new Event("a"));
	eq(log, ["atrue", "object", "atrue"]);
	t.removeEventListener("a", f);
	t.addEventListener("b", (e) => e.preventDefault());
	eq(t.dispatchEvent(new Event("b", { cancelable: true })), false);
	eq(t.dispatchEvent(new Event("b")), true);
	t.addEventListener("c", (e) => { e.stopImmediatePropagation(); log.push("c1"); });
	t.addEventListener("c", () => log.push("c2"));
	t.dispatchEvent(new CustomEvent("c", { detail: { x: 1 } }));
	eq(log.at(-1), "c1");
	eq(new CustomEvent("d", { detail: 5 }).detail, 5);
	eq(Event.name + new Event("x").constructor.name, "EventEvent");
});
test("EventTarget: signal removes, errors are reported", () => {
	const c = new AbortController();
	const t = new EventTarget();
	let n = 0;
	t.addEventListener("a", () => { n++; throw new Error("in a listener"); }, { signal: c.signal });
	t.addEventListener("a", () => n++);
	t.dispatchEvent(new Event("a"));
	c.abort();
	t.dispatchEvent(new Event("a"));
	eq(n, 3);
});
test("AbortController", async () => {
	const c = new AbortController();
	let seen = "";
	c.signal.onabort = (e) => (seen = e.type);
	c.abort();
	c.abort("again");
	eq([seen, c.signal.aborted, c.signal.reason.name], ["abort", true, "AbortError"]);
	await fails(() => c.signal.throwIfAborted(), "AbortError");
	eq(AbortSignal.abort("why").reason, "why");
	await fails(() => new (AbortSignal as any)(), "TypeError");
});
test("AbortSignal: timeout and any", async () => {
	const c = new AbortController();
	const any = AbortSignal.any([AbortSignal.timeout(5), c.signal]);
	eq(any.aborted, false);
	const reason: any = await new Promise((done) => any.addEventListener("abort", () => done(any.reason)));
	eq(reason.name, "TimeoutError");
	const both = AbortSignal.any([AbortSignal.any([c.signal])]);
	c.abort(7);
	eq([both.aborted, both.reason, AbortSignal.any([both]).reason], [true, 7, 7]);
});

test("structuredClone: values", () => {
	const o: any = { d: new Date(5), r: /a/gi, m: new Map([[{ k: 1 }, new Set([1, "2"])]]), n: null, u: undefined, b: 5n, a: [1, , 3], z: -0, e: new RangeError("bad", { cause: { c: 1 } }), o: Object(7) };
	o.self = o;
	o.m.set("o", o);
	const c = structuredClone(o);
	eq([c !== o, c.self === c, c.m.get("o") === c, c.d.getTime(), c.d !== o.d, String(c.r)], [true, true, true, 5, true, "/a/gi"]);
	const [[k, v]] = [...c.m];
	eq([k, [...v], c.n, "u" in c, c.b, 1 in c.a, c.a.length, Object.is(c.z, -0)], [{ k: 1 }, [1, "2"], null, true, 5n, false, 3, true] as any);
	eq([c.e instanceof RangeError, c.e.message, c.e.cause, typeof c.o, c.o.valueOf()], [true, "bad", { c: 1 }, "object", 7]);
	class P { x = 1; get y() { return 2; } }
	eq([structuredClone(new P()), structuredClone(new P()) instanceof P], [{ x: 1 }, false]);
});
test("structuredClone: buffers", async () => {
	const b = bytes(1, 2, 3, 4).buffer;
	const o = { a: new Uint8Array(b, 1, 2), b: new DataView(b), c: new Float64Array([1.5]) };
	const c = structuredClone(o);
	eq([c.a.buffer === c.b.buffer, c.a.byteOffset, [...c.a], c.b.getUint8(3), c.c[0], c.a.buffer !== b], [true, 1, [2, 3], 4, 1.5, true]);
	const moved = structuredClone(o, { transfer: [b] });
	eq([b.byteLength, [...moved.a]], [0, [2, 3]]);
	await fails(() => structuredClone(b), "DataCloneError");
	await fails(() => structuredClone({}, { transfer: [{} as any] }), "DataCloneError");
});
test("structuredClone: refuses", async () => {
	for (const v of [() => 1, Symbol("x"), { f() {} }, new WeakMap(), Promise.resolve(), [Symbol.iterator]]) {
		const e = await fails(() => structuredClone(v), "DataCloneError");
		eq([e instanceof DOMException, e.code], [true, 25]);
	}
	await fails(() => structuredClone({ get x() { throw new RangeError("getter"); } }), "RangeError");
	await fails(() => (structuredClone as any)(), "TypeError");
});
test("structuredClone: __proto__ stays a property", () => {
	const c: any = structuredClone(JSON.parse('{"__proto__":{"evil":1}}'));
	eq([c.evil, Object.keys(c), ({} as any).evil], [undefined, ["__proto__"], undefined]);
});

test("streams: read, cancel, tee", async () => {
	let cancelled: any;
	const s = new ReadableStream({ start(c) { c.enqueue(1); c.enqueue(2); }, cancel(r) { cancelled = r; } });
	const r = s.getReader();
	eq([await r.read(), await r.read()], [{ value: 1, done: false }, { value: 2, done: false }]);
	await r.cancel("enough");
	eq([cancelled, await r.read()], ["enough", { value: undefined, done: true }]);
	const [a, b] = ReadableStream.from(["x", "y"]).tee();
	const out: string[] = [];
	for await (const v of a as any) out.push(v);
	for await (const v of b as any) out.push(v);
	eq(out, ["x", "y", "x", "y"]);
	eq(s.locked, true);
});
test("streams: transform and backpressure", async () => {
	const up = new TransformStream<string, string>({ transform(c, k) { k.enqueue(c.toUpperCase()); }, flush(k) { k.enqueue("!"); } });
	let out = "";
	await ReadableStream.from(["a", "b"]).pipeThrough(up).pipeTo(new WritableStream({ write(c) { out += c; } }));
	eq(out, "AB!");
	const w = new WritableStream({ write: () => new Promise(() => {}) }, new CountQueuingStrategy({ highWaterMark: 2 })).getWriter();
	eq(w.desiredSize, 2);
	w.write(1);
	w.write(2);
	eq(w.desiredSize, 0);
	let s = "";
	for await (const t of ReadableStream.from([bytes(0xe2, 0x82), bytes(0xac)]).pipeThrough(new TextDecoderStream() as any) as any) s += t;
	eq(s, "€");
	for await (const b of ReadableStream.from(["é"]).pipeThrough(new TextEncoderStream() as any) as any) eq([...b], [195, 169]);
});
test("streams: errors and byte readers", async () => {
	const bad = new ReadableStream({ pull() { throw new RangeError("broken"); } });
	await fails(() => bad.getReader().read(), "RangeError", "broken");
	const r = new ReadableStream({ type: "bytes", start(c) { c.enqueue(bytes(1, 2, 3)); c.close(); } }).getReader({ mode: "byob" });
	const { value } = await r.read(new Uint8Array(2));
	eq([...value!], [1, 2]);
});

test("Headers", async () => {
	const h = new Headers({ "Content-Type": " text/plain ", a: "1" });
	h.append("A", "2");
	h.append("set-cookie", "x=1");
	h.append("set-cookie", "y=2");
	eq([...h], [["a", "1, 2"], ["content-type", "text/plain"], ["set-cookie", "x=1"], ["set-cookie", "y=2"]]);
	eq([h.getSetCookie(), h.get("none"), h.has("CONTENT-type")], [["x=1", "y=2"], null, true]);
	h.delete("a");
	eq(h.get("a"), null);
	await fails(() => h.set("a b", "x"), "TypeError");
	await fails(() => h.set("a", "x\r\ny: z"), "TypeError");
	eq(new Headers([["x", "1"]]).get("X"), "1");
});
test("Blob and File", async () => {
	const b = new Blob(["aé", bytes(1, 2), new Blob(["z"])], { type: "Text/Plain" });
	eq([b.size, b.type, await b.slice(0, 1).text(), [...new Uint8Array(await b.slice(-3, -1).arrayBuffer())]], [6, "text/plain", "a", [1, 2]]);
	const f = new File(["x"], "n.txt", { lastModified: 5 });
	eq([f.name, f.lastModified, f instanceof Blob, await new Response(f.stream()).text()], ["n.txt", 5, true, "x"]);
});
test("FormData: both ways", async () => {
	const f = new FormData();
	f.append("a", "1\n2");
	f.append("a", "3");
	f.append("file", new Blob([bytes(0, 255, 13, 10)], { type: "image/x" }), 'q"n');
	const r = new Response(f);
	const back = await r.formData();
	eq(back.getAll("a"), ["1\r\n2", "3"]);
	const file = back.get("file") as File;
	eq([file.name, file.type, [...(await file.bytes())]], ['q"n', "image/x", [0, 255, 13, 10]]);
	eq([...(await new Response(new URLSearchParams({ x: "1 2" })).formData())], [["x", "1 2"]]);
	await fails(() => new Response("x").formData(), "TypeError");
	f.set("a", "9");
	f.delete("file");
	eq([...f], [["a", "9"]]);
});
test("Request", async () => {
	const r = new Request("http://a.b/c", { method: "post", body: JSON.stringify({ x: 1 }), headers: { "x-y": "z" } });
	eq([r.method, r.url, r.headers.get("content-type"), r.headers.get("x-y"), r.bodyUsed], ["POST", "http://a.b/c", "text/plain;charset=UTF-8", "z", false]);
	const c = r.clone();
	eq([await r.json(), r.bodyUsed, await c.text()], [{ x: 1 }, true, '{"x":1}']);
	await fails(() => r.text(), "TypeError", "read already");
	await fails(() => new Request("http://a.b", { body: "x" }), "TypeError", "GET");
	await fails(() => new Request("/x"), "TypeError", "absolute");
	await fails(() => new Request("http://a", { method: "CONNECT" }), "TypeError");
	const from = new Request("http://a.b/", { method: "PUT", body: "x" });
	const n = new Request(from, { headers: { a: "b" } });
	eq([n.method, await n.text(), from.bodyUsed], ["PUT", "x", true]);
});
test("Response", async () => {
	const r = Response.json({ a: [1] }, { status: 201 });
	eq([r.status, r.ok, r.headers.get("content-type"), await r.json()], [201, true, "application/json", { a: [1] }]);
	eq([Response.redirect("http://a.b/x").headers.get("location"), Response.error().type], ["http://a.b/x", "error"]);
	eq([new Response().body, await new Response(null).text(), (await new Response(bytes(1, 2)).blob()).size], [null, "", 2]);
	await fails(() => new Response("x", { status: 204 }), "TypeError");
	await fails(() => new Response("", { status: 99 }), "RangeError");
	const s = new Response(new ReadableStream({ start(c) { c.enqueue(new TextEncoder().encode("ab")); c.enqueue("c"); c.close(); } }));
	const t = s.clone();
	eq([await s.text(), await t.text()], ["abc", "abc"]);
	const body = new Response("xyz");
	let n = 0;
	for await (const chunk of body.body as any) n += chunk.length;
	eq([n, body.bodyUsed], [3, true]);
	await fails(() => body.text(), "TypeError");
});

test("crypto: random", () => {
	const a = crypto.getRandomValues(new Uint32Array(4));
	eq(new Set([...a, ...crypto.getRandomValues(new Uint32Array(4))]).size, 8);
	eq(/^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/.test(crypto.randomUUID()), true);
	fails(() => crypto.getRandomValues(new Uint8Array(65537)), "QuotaExceededError");
	fails(() => crypto.getRandomValues(new Float32Array(1) as any), "TypeMismatchError");
	const view = new Uint8Array(8).subarray(2, 4);
	crypto.getRandomValues(view);
	eq([...new Uint8Array(view.buffer).filter((_, i) => i < 2 || i > 3)], [0, 0, 0, 0, 0, 0]);
});
const hex = (b: ArrayBuffer) => (new Uint8Array(b) as any).toHex();
const utf8 = (s: string) => new TextEncoder().encode(s);
test("crypto: digest", async () => {
	eq(hex(await crypto.subtle.digest("SHA-256", utf8("abc"))), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
	eq(hex(await crypto.subtle.digest({ name: "sha-1" }, utf8(""))), "da39a3ee5e6b4b0d3255bfef95601890afd80709");
	eq(hex(await crypto.subtle.digest("SHA-384", utf8("abc"))).slice(0, 16), "cb00753f45a35e8b");
	eq(hex(await crypto.subtle.digest("SHA-512", utf8("abc"))).slice(0, 16), "ddaf35a193617aba");
	await fails(() => crypto.subtle.digest("MD5", utf8("")), "NotSupportedError");
	await fails(() => crypto.subtle.digest("SHA-1", "text" as any), "TypeError");
});
test("crypto: HMAC", async () => {
	const alg = { name: "HMAC", hash: "SHA-256" };
	const k = await crypto.subtle.importKey("raw", utf8("key"), alg, false, ["sign", "verify"]);
	const s = await crypto.subtle.sign("HMAC", k, utf8("The quick brown fox jumps over the lazy dog"));
	eq(hex(s), "f7bc83f430538424b13298e6aa6fb143ef4d59a14946175997479dbc2d1a3cd8");
	eq(await crypto.subtle.verify("HMAC", k, s, utf8("The quick brown fox jumps over the lazy dog")), true);
	eq(await crypto.subtle.verify("HMAC", k, s, utf8("other")), false);
	await fails(() => crypto.subtle.exportKey("raw", k), "InvalidAccessError");
	const g = (await crypto.subtle.generateKey({ name: "HMAC", hash: "SHA-512" }, true, ["sign"])) as CryptoKey;
	eq([((await crypto.subtle.exportKey("raw", g)) as ArrayBuffer).byteLength, g.usages], [128, ["sign"]]);
	await fails(() => crypto.subtle.verify("HMAC", g, s, utf8("")), "InvalidAccessError");
	await fails(() => crypto.subtle.importKey("raw", new Uint8Array(0), alg, false, ["sign"]), "DataError");
});
test("crypto: ECDSA", async () => {
	// RFC 6979, A.2.5: P-256, message "sample".
	const x = "60FED4BA255A9D31C961EB74C6356D68C049B8923B61FA6CE669622E60F29FB6";
	const y = "7903FE1008B8BC99A41AE9E95628BC64F2F1B20C2D7E9F5177A3C294D4462299";
	const sig = "EFD48B2AACB6A8FD1140DD9CD45E81D69D2C877B56AAF991C34D0EA84EAF3716F7CB1C942D657C41D436C7A1B6E29F65F3E900DBB9AFF4064DC4AB2F843ACDA8";
	const from = (s: string) => (Uint8Array as any).fromHex(s);
	const alg = { name: "ECDSA", namedCurve: "P-256" };
	const k = await crypto.subtle.importKey("raw", from("04" + x + y), alg, true, ["verify"]);
	const how = { name: "ECDSA", hash: "SHA-256" };
	eq(await crypto.subtle.verify(how, k, from(sig), utf8("sample")), true);
	eq(await crypto.subtle.verify(how, k, from(sig), utf8("simple")), false);
	const jwk = await crypto.subtle.exportKey("jwk", k);
	eq([jwk.kty, jwk.crv, jwk.x], ["EC", "P-256", from(x).toBase64({ alphabet: "base64url", omitPadding: true })]);
	await roundTrip(alg, how);
	await fails(() => crypto.subtle.importKey("raw", new Uint8Array(65), alg, true, ["verify"]), "DataError");
	await fails(() => crypto.subtle.generateKey({ name: "ECDSA", namedCurve: "P-521" }, true, ["sign"]), "NotSupportedError");
});
test("crypto: Ed25519", async () => {
	// RFC 8032, 7.1, test 2.
	const from = (s: string) => (Uint8Array as any).fromHex(s);
	const k = await crypto.subtle.importKey("raw", from("3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c"), "Ed25519", true, ["verify"]);
	const sig = from("92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c00");
	eq(await crypto.subtle.verify("Ed25519", k, sig, bytes(0x72)), true);
	sig[0] ^= 1;
	eq(await crypto.subtle.verify("Ed25519", k, sig, bytes(0x72)), false);
	await roundTrip({ name: "Ed25519" }, { name: "Ed25519" });
});
async function roundTrip(alg: any, how: any) {
	const { publicKey, privateKey } = (await crypto.subtle.generateKey(alg, true, ["sign", "verify"])) as CryptoKeyPair;
	eq([publicKey.type, publicKey.usages, privateKey.usages], ["public", ["verify"], ["sign"]]);
	for (const format of ["pkcs8", "jwk"] as const) {
		const priv = await crypto.subtle.importKey(format as any, (await crypto.subtle.exportKey(format as any, privateKey)) as any, alg, false, ["sign"]);
		const sig = await crypto.subtle.sign(how, priv, utf8("message"));
		eq(sig.byteLength, 64);
		for (const f of ["raw", "spki", "jwk"] as const) {
			const pub = await crypto.subtle.importKey(f as any, (await crypto.subtle.exportKey(f as any, publicKey)) as any, alg, true, ["verify"]);
			eq(await crypto.subtle.verify(how, pub, sig, utf8("message")), true);
		}
	}
	await fails(() => crypto.subtle.sign(how, publicKey, utf8("")), "InvalidAccessError");
}
test("crypto: what is not there says so", () => fails(() => crypto.subtle.encrypt({ name: "AES-GCM" } as any, {} as any, utf8("")), "NotSupportedError", "encrypt"));

test("timers: order", async () => {
	const log: unknown[] = [];
	setTimeout((x: string) => log.push(x), 4, "four");
	setTimeout(() => { log.push("zero"); queueMicrotask(() => log.push("micro")); });
	setTimeout(() => log.push("zero too"), 0);
	clearTimeout(setTimeout(() => log.push("never"), 1));
	clearTimeout(undefined as any);
	Promise.resolve().then(() => log.push("job"));
	let n = 0;
	await new Promise<void>((done) => {
		const i = setInterval(() => { if (++n === 3) { clearInterval(i); done(); } }, 3);
	});
	eq([log, n], [["job", "zero", "micro", "zero too", "four"], 3]);
	await fails(() => (setTimeout as any)("code"), "TypeError", "function");
});
test("timers: many, out of order", async () => {
	const delays = Array.from({ length: 60 }, (_, i) => (i * 37) % 20);
	const seen: number[] = [];
	await Promise.all(delays.map((d) => new Promise<void>((done) => setTimeout(() => { seen.push(d); done(); }, d))));
	eq(seen, [...delays].sort((a, b) => a - b));
});
test("queueMicrotask, atob, btoa, performance, navigator", async () => {
	let ran = false;
	queueMicrotask(() => (ran = true));
	await null;
	eq([ran, btoa("a\xff"), atob(" YQ== ")], [true, "Yf8=", "a"]);
	await fails(() => btoa("€"), "InvalidCharacterError");
	await fails(() => atob("*"), "InvalidCharacterError");
	const t = performance.now();
	eq([t >= 0 && t < 60_000, performance.now() >= t, Math.abs(performance.timeOrigin + t - Date.now()) < 1000], [true, true, true]);
	eq([navigator.userAgent, self === globalThis], ["Skep", true]);
});
test("Intl: numbers", async () => {
	const f = (n: number | bigint, o?: any) => new Intl.NumberFormat("en-US", o).format(n);
	eq([f(1234567.891), f(-0.5), f(1e21), f(12n), f(NaN), f(0.00001)], ["1,234,567.891", "-0.5", "1,000,000,000,000,000,000,000", "12", "NaN", "0"]);
	eq([f(1234.5, { style: "currency", currency: "USD" }), f(-3, { style: "currency", currency: "JPY" }), f(2, { style: "currency", currency: "CHF" })], ["$1,234.50", "-¥3", "CHF\u00a02.00"]);
	eq([f(0.256, { style: "percent" }), f(1.005, { maximumFractionDigits: 2 }), f(5, { minimumFractionDigits: 2 }), f(7, { minimumIntegerDigits: 2 })], ["26%", "1.01", "5.00", "07"]);
	eq([f(1234, { notation: "compact" }), f(1_500_000, { notation: "compact" }), f(123456, { maximumSignificantDigits: 3 }), f(1e4, { useGrouping: false })], ["1.2K", "1.5M", "123,000", "10000"]);
	eq([(1234.5).toLocaleString(), (12345678901234567890n).toLocaleString("en")], ["1,234.5", "12,345,678,901,234,567,890"]);
	await fails(() => (1).toLocaleString("de-DE"), "RangeError", "de-DE");
	await fails(() => f(1, { style: "unit", unit: "meter" }), "RangeError", "unit");
});
test("Intl: dates and plurals", async () => {
	const d = new Date(Date.UTC(2024, 1, 5, 15, 4, 9));
	eq([d.toLocaleDateString("en-US"), d.toLocaleTimeString(), d.toLocaleString("en-US")], ["2/5/2024", "3:04:09 PM", "2/5/2024, 3:04:09 PM"]);
	const f = (o: any) => new Intl.DateTimeFormat("en-US", o).format(d);
	eq([f({ dateStyle: "full", timeStyle: "short" }), f({ dateStyle: "medium" }), f({ month: "long", year: "numeric" }), f({ weekday: "short", month: "short", day: "2-digit" })], ["Monday, February 5, 2024 at 3:04 PM", "Feb 5, 2024", "February 2024", "Mon, Feb 05"]);
	eq(f({ hour: "2-digit", minute: "2-digit", hour12: false }), "15:04");
	await fails(() => f({ timeZone: "Europe/Berlin" }), "RangeError", "Europe/Berlin");
	eq([1, 2, 3, 4, 11, 21].map((n) => new Intl.PluralRules("en", { type: "ordinal" }).select(n)), ["one", "two", "few", "other", "other", "one"]);
});
test("what is not in the web's set is not here", () => {
	eq(["process", "require", "Deno", "Bun", "__skep", "WebAssembly", "XMLHttpRequest", "__core-js_shared__"].filter((n) => n in globalThis), []);
});
