// How an author's values travel.
import { ObjectPrototype, getPrototypeOf, isArray, isBuffer, isView, toWellFormed, viewBytes } from "./primordials.js";
import { json } from "./host.js";

// The forms in which a value travels.
export const JSON_FORM = 0, TEXT_FORM = 1, BYTES_FORM = 2, OTHER_FORM = 3; // bytes of a type that is said

export function formOf(v) {
  if (typeof v === "string") return TEXT_FORM;
  if (typeof v !== "object" || v === null || getPrototypeOf(v) === ObjectPrototype || isArray(v)) return JSON_FORM; // which is quicker
  return isBuffer(v) || isView(v) ? BYTES_FORM : JSON_FORM;
}

// bodyOf returns the text or the bytes of v in that form.
export function bodyOf(form, v) {
  return form === JSON_FORM ? json(v) : form === TEXT_FORM ? toWellFormed(v) : viewBytes(v);
}
