/**
 * The facts: what a meter showed at a moment. Meter and moment are the business key, and the table has a row for each.
 *
 * Facts owe each other no order, so the stream asks the broker for none. `reading_effect` has no unique key on purpose: an event
 * that took effect twice would show there.
 */
import { state, stream } from 'waybill'
import { z } from 'zod'

export const readingSchema = z.object({ meter: z.string().min(1), at: z.int(), value: z.number() })
export type Reading = z.infer<typeof readingSchema>

export const readings = stream('reading', {
  topic: 'reading.events',
  ordering: 'version',
  events: { ReadingTaken: state(readingSchema) },
})

export const readingKey = ({ meter, at }: Reading): readonly [string, number] => [meter, at]

export const readingTables = `
  create table if not exists reading (
    meter      text,
    at         bigint,
    value      double precision,
    version    bigint not null,
    deleted_at timestamptz,
    primary key (meter, at)
  );
  create table if not exists reading_effect (event_id uuid not null);`
