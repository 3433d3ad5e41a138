/** The facts of the ingest's tests: what a meter showed at a moment. The business key is both. */
import { z } from 'zod'
import { state } from '../../src/core/event/event.ts'
import { stream } from '../../src/core/event/stream.ts'

export const readingSchema = z.object({ meter: z.string(), at: z.number(), value: z.number(), note: z.string().optional() })
export type Reading = z.infer<typeof readingSchema>

export const readings = stream('reading', {
  topic: 'reading.events',
  ordering: 'lane',
  events: { ReadingTaken: state(readingSchema) },
})

export const readingKey = ({ meter, at }: Reading): readonly [string, number] => [meter, at]

export const reading = (n: number): Reading => ({ meter: `meter-${n % 7}`, at: n, value: n * 2 })
