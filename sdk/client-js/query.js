/** esc makes a segment of a path of any text but "." and "..". */
export const esc = encodeURIComponent;

/** query is a query string of what is not undefined. */
export function query(of = {}) {
  const q = new URLSearchParams(Object.entries(of).filter(([, v]) => v !== undefined)).toString();
  return q && `?${q}`;
}
