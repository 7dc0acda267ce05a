import roman from "roman-numerals";

import holidays from "./holidays.json";
import { daysBetween } from "./calendar.ts";
import footer from "./footer.txt";

/** The next holiday after a date, and how far it is. */
export function next(input: { from: string }) {
  const upcoming = holidays
    .map((holiday) => ({ ...holiday, days: daysBetween(input.from, holiday.date) }))
    .filter((holiday) => holiday.days >= 0)
    .sort((a, b) => a.days - b.days);
  return upcoming[0] ?? null;
}

/** The same as a line of text, for people with a taste for stone tablets. */
export function tablet(input: { from: string }) {
  const holiday = next(input);
  const line = holiday === null ? "NIHIL" : `${holiday.name.toUpperCase()} IN ${roman.encode(holiday.days)} DAYS`;
  return `${line}\n${footer}`;
}
