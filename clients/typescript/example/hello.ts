import { complete, emit, register, work } from "outlast";
import postgres from "postgres";

const sql = postgres(process.env["DATABASE_URL"]!);
const stop = new AbortController();
await sql`create table if not exists guest (name text, greeted boolean)`;
await register(sql, "greeter", ["greeted"]);

await sql.begin(async (tx) => {
  await tx`insert into guest values ('Ada', false)`;
  await emit(tx, { type: "greeted", payload: { name: "Ada" } }); // both commit, or neither
});

const greet = async (name: string, token: string, id: string) =>
  sql.begin(async (tx) => {
    await tx`update guest set greeted = true where name = ${name}`;
    await complete(tx, token, id); // last: throws when somebody newer owns the event, and nothing is kept
  });

await work(sql, "greeter", async ({ token, id, payload }) => {
  const { name } = JSON.parse(payload.toString());
  await greet(name, token, id);
  console.log(`hello ${name}`);
  stop.abort();
}, { signal: stop.signal });
await sql.end();
