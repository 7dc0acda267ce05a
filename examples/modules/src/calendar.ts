const day = 24 * 60 * 60 * 1000;

export function daysBetween(from: string, to: string): number {
  const span = Date.parse(to) - Date.parse(from);
  if (Number.isNaN(span)) {
    throw new RangeError(`not a date: ${from}`);
  }
  return Math.round(span / day);
}
