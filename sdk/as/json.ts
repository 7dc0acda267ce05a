// What little JSON a small agent needs: reading members of an object, and quoting. It trusts that the text is JSON.

/** Returns text as a JSON string. */
export function quote(text: string): string {
  let out = '"';
  for (let i = 0; i < text.length; i++) {
    const c = text.charCodeAt(i);
    if (c == 34 || c == 92) out += "\\" + text.charAt(i);
    else if (c < 32) out += "\\u00" + (c < 16 ? "0" : "") + c.toString(16);
    else out += text.charAt(i);
  }
  return out + '"';
}

/** Returns a member of a JSON object that is a string, or null. */
export function text(object: string, name: string): string | null {
  const at = find(object, name);
  return at < 0 || object.charCodeAt(at) != 34 ? null : unquote(object, at);
}

/** Returns a member of a JSON object that is a number; NaN when it is not. */
export function number(object: string, name: string): f64 {
  const at = find(object, name);
  return at < 0 ? NaN : parse(object.substring(at, skip(object, at)));
}

/** Returns a member of a JSON object as JSON text, or null. */
export function member(object: string, name: string): string | null {
  const at = find(object, name);
  return at < 0 ? null : object.substring(at, skip(object, at));
}

/** Returns the number that is the whole of a JSON text; NaN when it is none. */
export function parse(number: string): f64 {
  const c = number.trim().charCodeAt(0);
  return c == 45 || (c >= 48 && c <= 57) ? F64.parseFloat(number) : NaN;
}

function find(s: string, name: string): i32 {
  let at = space(s, 0);
  if (charAt(s, at) != 123) return -1;
  at++;
  while (true) {
    at = space(s, at);
    if (charAt(s, at) != 34) return -1;
    const found = unquote(s, at) == name;
    at = space(s, skip(s, at));
    if (charAt(s, at) != 58) return -1;
    at = space(s, at + 1);
    if (found) return at;
    at = space(s, skip(s, at));
    if (charAt(s, at) != 44) return -1;
    at++;
  }
}

function charAt(s: string, at: i32): i32 {
  return at < s.length ? s.charCodeAt(at) : -1;
}

function space(s: string, at: i32): i32 {
  while (at < s.length && (s.charCodeAt(at) == 32 || (s.charCodeAt(at) >= 9 && s.charCodeAt(at) <= 13))) at++;
  return at;
}

/** Returns where the value that begins at `at` ends. */
function skip(s: string, at: i32): i32 {
  let depth = 0;
  do {
    at = space(s, at);
    const c = charAt(s, at);
    if (c == 34) {
      for (at++; at < s.length && s.charCodeAt(at) != 34; at++) if (s.charCodeAt(at) == 92) at++;
      at++;
    } else if (c == 123 || c == 91) {
      depth++;
      at++;
    } else if (c == 125 || c == 93) {
      depth--;
      at++;
    } else if (c == 44 || c == 58) {
      at++;
    } else {
      while (at < s.length && !ends(s.charCodeAt(at))) at++;
    }
  } while (depth > 0 && at < s.length);
  return min(at, s.length);
}

function ends(c: i32): bool {
  return c == 44 || c == 58 || c == 93 || c == 125 || c == 34 || c <= 32;
}

function unquote(s: string, at: i32): string {
  let out = "";
  for (at++; at < s.length && s.charCodeAt(at) != 34; at++) {
    if (s.charCodeAt(at) != 92) {
      out += s.charAt(at);
      continue;
    }
    const c = charAt(s, ++at);
    if (c == 98) out += "\b";
    else if (c == 102) out += "\f";
    else if (c == 110) out += "\n";
    else if (c == 114) out += "\r";
    else if (c == 116) out += "\t";
    else if (c == 117) {
      out += String.fromCharCode(i32(I32.parseInt(s.substr(at + 1, 4), 16)));
      at += 4;
    } else out += s.charAt(at);
  }
  return out;
}

const digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

export function base64(buffer: ArrayBuffer): string {
  const b = Uint8Array.wrap(buffer);
  let out = "";
  for (let i = 0; i < b.length; i += 3) {
    let w: u32 = 0;
    for (let k = 0; k < 3; k++) w = (w << 8) | (i + k < b.length ? b[i + k] : 0);
    for (let k = 0; k < 4; k++) out += i + k > b.length ? "=" : digits.charAt((w >> (18 - 6 * k)) & 63);
  }
  return out;
}

export function unbase64(text: string): ArrayBuffer {
  const out: u8[] = [];
  let w: u32 = 0;
  let bits = 0;
  for (let i = 0; i < text.length && text.charCodeAt(i) != 61; i++) {
    w = (w << 6) | digits.indexOf(text.charAt(i));
    bits += 6;
    if (bits >= 8) {
      bits -= 8;
      out.push(u8(w >> bits));
    }
  }
  const b = new Uint8Array(out.length);
  for (let i = 0; i < out.length; i++) b[i] = out[i];
  return b.buffer;
}
