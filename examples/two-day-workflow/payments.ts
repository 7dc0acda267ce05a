import { config, sleep } from "skep";

/** Stands in for a service that takes money: it may be down, and it may be slow. */
export async function charge({ item, price }: { item: string; price: number }) {
  if (config.down) throw new Error("payments are down");
  await sleep(Number(config.slow ?? 0));
  console.log(`charged ${price} for ${item}`);
  return { receipt: crypto.randomUUID() };
}

export function refund({ receipt }: { receipt: string }) {
  console.log(`refunded ${receipt}`);
}
