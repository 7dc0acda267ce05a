// A small Intl: English numbers, plurals and dates in UTC. What is not here is refused by name rather than done wrong.
import { define } from "./host.js";

const english = /^en(-[A-Za-z0-9]+)*$/;

function locale(locales) {
  const list = locales === undefined ? [] : typeof locales === "string" ? [locales] : [...locales];
  if (list.length === 0 || list.some((l) => english.test(l))) return "en-US";
  throw new RangeError(`Intl: the locale ${JSON.stringify(list[0])} is not supported; only en-US is`);
}

function option(options, name, allowed, fallback) {
  const v = options?.[name];
  if (v === undefined) return fallback;
  if (!allowed.includes(v)) throw new RangeError(`Intl: ${name} ${JSON.stringify(v)} is not supported; use ${allowed.join(", ")}`);
  return v;
}

function digits(options, name, low, high, fallback) {
  const v = options?.[name];
  if (v === undefined) return fallback;
  if (!(v >= low && v <= high)) throw new RangeError(`Intl: ${name} must be between ${low} and ${high}`);
  return Math.floor(v);
}

const symbols = { __proto__: null, USD: "$", EUR: "€", GBP: "£", JPY: "¥", INR: "₹", CNY: "CN¥", KRW: "₩", BRL: "R$", CAD: "CA$", AUD: "A$", MXN: "MX$", NZD: "NZ$", ILS: "₪", VND: "₫" };
const noMinor = ["JPY", "KRW", "VND", "CLP", "ISK", "UGX", "XAF", "XOF", "PYG"];

class NumberFormat {
  #o;
  constructor(locales, options = {}) {
    const style = option(options, "style", ["decimal", "percent", "currency"], "decimal");
    const currency = options.currency === undefined ? undefined : String(options.currency).toUpperCase();
    if (style === "currency" && !/^[A-Z]{3}$/.test(currency ?? "")) throw new TypeError("Intl.NumberFormat: a currency of three letters is required");
    const notation = option(options, "notation", ["standard", "compact"], "standard");
    const minor = style === "currency" ? (noMinor.includes(currency) ? 0 : 2) : 0;
    const min = digits(options, "minimumFractionDigits", 0, 100, undefined);
    const max = digits(options, "maximumFractionDigits", 0, 100, undefined);
    const dMax = Math.max(style === "decimal" && notation === "standard" ? 3 : minor, min ?? 0);
    if (min !== undefined && max !== undefined && min > max) throw new RangeError("Intl.NumberFormat: minimumFractionDigits is above maximumFractionDigits");
    this.#o = {
      locale: locale(locales), numberingSystem: "latn", style, currency, notation,
      currencyDisplay: option(options, "currencyDisplay", ["symbol", "code"], "symbol"),
      useGrouping: options.useGrouping === undefined ? "auto" : options.useGrouping,
      signDisplay: option(options, "signDisplay", ["auto", "never", "always"], "auto"),
      minimumIntegerDigits: digits(options, "minimumIntegerDigits", 1, 21, 1),
      minimumFractionDigits: min ?? Math.min(minor, max ?? minor),
      maximumFractionDigits: max ?? dMax,
      minimumSignificantDigits: digits(options, "minimumSignificantDigits", 1, 21, undefined),
      maximumSignificantDigits: digits(options, "maximumSignificantDigits", 1, 21, undefined),
    };
  }
  resolvedOptions() { return { ...this.#o }; }
  format = (value) => {
    const o = this.#o;
    let sign = "";
    let suffix = "";
    let body;
    let n = typeof value === "bigint" ? value : Number(value);
    if (n < 0 || Object.is(n, -0)) {
      sign = "-";
      n = -n;
    } else if (o.signDisplay === "always") {
      sign = "+";
    }
    if (o.signDisplay === "never") sign = "";
    if (typeof n === "number" && isNaN(n)) {
      body = "NaN";
      sign = "";
    } else if (n === Infinity) {
      body = "∞";
    } else {
      if (o.style === "percent") n = typeof n === "bigint" ? n * 100n : n * 100;
      let limits = o;
      if (o.notation === "compact") {
        n = Number(n);
        for (const [at, s] of [[1e12, "T"], [1e9, "B"], [1e6, "M"], [1e3, "K"]]) {
          if (n < at) continue;
          n /= at;
          suffix = s;
          break;
        }
        limits = { ...o, minimumFractionDigits: 0, maximumFractionDigits: n < 100 && n !== Math.floor(n) && n < 10 ? 1 : 0 };
      }
      body = fixed(n, limits);
      const [int, frac] = body.split(".");
      const whole = int.padStart(o.minimumIntegerDigits, "0");
      body = (o.useGrouping === false ? whole : whole.replace(/\B(?=(\d{3})+$)/g, ",")) + (frac ? "." + frac : "");
    }
    if (o.style === "percent") suffix += "%";
    if (o.style === "currency") {
      const s = o.currencyDisplay === "symbol" ? symbols[o.currency] : undefined;
      return sign + (s ?? o.currency + "\u00a0") + body + suffix;
    }
    return sign + body + suffix;
  };
  static supportedLocalesOf(l) { return supported(l); }
}

// fixed writes a number that is not negative with the asked digits, rounding half away from zero on its decimal text.
function fixed(n, o) {
  if (o.maximumSignificantDigits !== undefined || o.minimumSignificantDigits !== undefined) {
    const max = o.maximumSignificantDigits ?? 21;
    let s = plain(Number(Number(n).toPrecision(max)));
    const have = s.replace(".", "").replace(/^0+/, "").length;
    const more = (o.minimumSignificantDigits ?? 1) - have;
    if (more > 0) s += (s.includes(".") ? "" : ".") + "0".repeat(more);
    return s;
  }
  let [int, frac = ""] = plain(n).split(".");
  if (frac.length > o.maximumFractionDigits) {
    const up = frac[o.maximumFractionDigits] >= "5" ? 1n : 0n;
    const kept = String(BigInt(int + frac.slice(0, o.maximumFractionDigits)) + up).padStart(o.maximumFractionDigits + 1, "0");
    int = kept.slice(0, kept.length - o.maximumFractionDigits);
    frac = kept.slice(kept.length - o.maximumFractionDigits);
  }
  while (frac.length > o.minimumFractionDigits && frac.endsWith("0")) frac = frac.slice(0, -1);
  frac = frac.padEnd(o.minimumFractionDigits, "0");
  return frac ? int + "." + frac : int;
}

// plain is String(n) without an exponent.
function plain(n) {
  const s = String(n);
  const m = /^(\d+)(?:\.(\d+))?e([+-]\d+)$/.exec(s);
  if (!m) return s;
  const e = +m[3];
  const all = m[1] + (m[2] ?? "");
  if (e < 0) return "0." + "0".repeat(-e - 1) + all;
  return all.padEnd(e + 1, "0");
}

const months = ["January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November", "December"];
const days = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];
const two = (n) => String(n).padStart(2, "0");

class DateTimeFormat {
  #o;
  constructor(locales, options = {}) {
    const zone = options.timeZone === undefined ? "UTC" : String(options.timeZone);
    if (!/^(utc|gmt|etc\/(utc|gmt)|z|\+00:00)$/i.test(zone)) throw new RangeError(`Intl: the time zone ${JSON.stringify(zone)} is not supported; only UTC is`);
    const o = (this.#o = { locale: locale(locales), calendar: "gregory", numberingSystem: "latn", timeZone: "UTC" });
    const styles = ["full", "long", "medium", "short"];
    const num = ["numeric", "2-digit"];
    const text = ["long", "short", "narrow"];
    const put = (name, allowed) => {
      const v = option(options, name, allowed, undefined);
      if (v !== undefined) o[name] = v;
    };
    put("dateStyle", styles);
    put("timeStyle", styles);
    put("weekday", text);
    put("year", num);
    put("month", [...num, ...text]);
    put("day", num);
    put("hour", num);
    put("minute", num);
    put("second", num);
    put("timeZoneName", ["short"]);
    put("fractionalSecondDigits", [1, 2, 3]);
    o.hour12 = options.hour12 ?? !["h23", "h24"].includes(options.hourCycle);
    if ((o.dateStyle || o.timeStyle) && (o.weekday || o.year || o.month || o.day || o.hour || o.minute || o.second)) throw new TypeError("Intl.DateTimeFormat: dateStyle and timeStyle do not go with single fields");
    if (!["dateStyle", "timeStyle", "weekday", "year", "month", "day", "hour", "minute", "second", "fractionalSecondDigits"].some((k) => k in o)) o.year = o.month = o.day = "numeric";
  }
  resolvedOptions() { return { ...this.#o }; }
  format = (value) => {
    const d = new Date(value === undefined ? Date.now() : value);
    if (isNaN(d)) throw new RangeError("Intl.DateTimeFormat: the date is not valid");
    let o = this.#o;
    if (o.dateStyle || o.timeStyle) o = { ...o, ...dateStyles[o.dateStyle], ...timeStyles[o.timeStyle] };
    const date = datePart(d, o);
    const time = timePart(d, o);
    return date && time ? date + (o.dateStyle === "full" || o.dateStyle === "long" ? " at " : ", ") + time : date || time;
  };
  static supportedLocalesOf(l) { return supported(l); }
}

const dateStyles = {
  __proto__: null,
  full: { weekday: "long", year: "numeric", month: "long", day: "numeric" },
  long: { year: "numeric", month: "long", day: "numeric" },
  medium: { year: "numeric", month: "short", day: "numeric" },
  short: { year: "2-digit", month: "numeric", day: "numeric" },
};
const hms = { hour: "numeric", minute: "2-digit", second: "2-digit" };
const timeStyles = { __proto__: null, full: { ...hms, timeZoneName: "short" }, long: { ...hms, timeZoneName: "short" }, medium: hms, short: { hour: "numeric", minute: "2-digit" } };

function datePart(d, o) {
  const name = (list, i, form) => (form === "narrow" ? list[i][0] : form === "short" ? list[i].slice(0, 3) : list[i]);
  const weekday = o.weekday && name(days, d.getUTCDay(), o.weekday);
  const y = d.getUTCFullYear();
  const year = o.year && (o.year === "2-digit" ? two(y % 100) : String(y));
  const day = o.day && (o.day === "2-digit" ? two(d.getUTCDate()) : String(d.getUTCDate()));
  if (o.month && o.month !== "numeric" && o.month !== "2-digit") {
    const month = name(months, d.getUTCMonth(), o.month);
    const md = day ? `${month} ${day}` : month;
    return [weekday, year ? (day ? `${md}, ${year}` : `${md} ${year}`) : md].filter(Boolean).join(", ");
  }
  const month = o.month && (o.month === "2-digit" ? two(d.getUTCMonth() + 1) : String(d.getUTCMonth() + 1));
  return [weekday, [month, day, year].filter(Boolean).join("/")].filter(Boolean).join(", ");
}

function timePart(d, o) {
  const h = d.getUTCHours();
  const parts = [];
  if (o.hour) {
    const shown = o.hour12 ? h % 12 || 12 : h;
    parts.push(o.hour === "2-digit" || !o.hour12 ? two(shown) : String(shown));
  }
  if (o.minute) parts.push(o.hour || o.minute === "2-digit" ? two(d.getUTCMinutes()) : String(d.getUTCMinutes()));
  if (o.second || o.fractionalSecondDigits) {
    let s = o.minute || o.second === "2-digit" ? two(d.getUTCSeconds()) : String(d.getUTCSeconds());
    if (o.fractionalSecondDigits) s += "." + String(d.getUTCMilliseconds()).padStart(3, "0").slice(0, o.fractionalSecondDigits);
    parts.push(s);
  }
  let s = parts.join(":");
  if (o.hour && o.hour12) s += h < 12 ? " AM" : " PM";
  if (o.timeZoneName) s += " UTC";
  return s;
}

class PluralRules {
  #type;
  constructor(locales, options = {}) {
    locale(locales);
    this.#type = option(options, "type", ["cardinal", "ordinal"], "cardinal");
  }
  select(n) {
    n = Math.abs(Number(n));
    if (this.#type === "cardinal") return n === 1 ? "one" : "other";
    const tens = n % 100;
    if (tens >= 11 && tens <= 13) return "other";
    return ["other", "one", "two", "few"][n % 10] ?? "other";
  }
  resolvedOptions() { return { locale: "en-US", type: this.#type, pluralCategories: this.#type === "cardinal" ? ["one", "other"] : ["few", "one", "two", "other"] }; }
  static supportedLocalesOf(l) { return supported(l); }
}

const supported = (l) => (l === undefined ? [] : typeof l === "string" ? [l] : [...l]).filter((x) => english.test(x));

const Intl = { NumberFormat, DateTimeFormat, PluralRules, getCanonicalLocales: (l) => (l === undefined ? [] : typeof l === "string" ? [l] : [...l]) };
Object.defineProperty(Intl, Symbol.toStringTag, { value: "Intl" });
for (const name of ["NumberFormat", "DateTimeFormat"]) {
  // Both may be called without new.
  const C = Intl[name];
  Intl[name] = new Proxy(C, { apply: (_, __, args) => new C(...args) });
}
define({ Intl });

const method = (proto, name, fn) => Object.defineProperty(proto, name, { value: { [name]: fn }[name], writable: true, configurable: true });
method(Number.prototype, "toLocaleString", function (locales, options) { return new NumberFormat(locales, options).format(Number.prototype.valueOf.call(this)); });
method(BigInt.prototype, "toLocaleString", function (locales, options) { return new NumberFormat(locales, options).format(BigInt.prototype.valueOf.call(this)); });
const date = { year: "numeric", month: "numeric", day: "numeric" };
const fields = ["weekday", "year", "month", "day", "dateStyle", "timeStyle", "hour", "minute", "second", "fractionalSecondDigits"];
const withDefault = (options, d) => (fields.some((k) => options?.[k] !== undefined) ? options : { ...options, ...d });
const dates = { toLocaleString: { ...date, ...hms }, toLocaleDateString: date, toLocaleTimeString: hms };
for (const name of Object.keys(dates)) {
  method(Date.prototype, name, function (locales, options) {
    return isNaN(this) ? "Invalid Date" : new DateTimeFormat(locales, withDefault(options, dates[name])).format(this);
  });
}
