import { expect, test } from 'vitest'

import { groupRole, groupRoles, tableGrants } from './roles.ts'

test('two services with one schema have other roles, each time the same', () => {
  const names = ['orders', 'billing', 'order-service'].map((service) => groupRole({ schema: 'waybill', service }, 'app'))
  expect(names).toEqual(['waybill_orders_app', 'waybill_billing_app', 'waybill_order_service_app'])
})

test('a name that would be too long ends in a hash, and stays within 63 characters for every role', () => {
  const [one, other] = ['a', 'b'].map((end) => ({ schema: 's'.repeat(40), service: `${'x'.repeat(60)}${end}` }))
  for (const role of groupRoles) {
    const [first, second] = [one, other].map((names) => groupRole(names ?? { schema: '', service: '' }, role))
    expect(first).toMatch(new RegExp(`^[a-z_][a-z0-9_]{0,62}$`))
    expect(first).toMatch(new RegExp(`_[0-9a-f]{8}_${role}$`))
    expect(first).not.toBe(second)
  }
})

test('the read-only role has no column with what messages and commands contain', () => {
  const hidden = {
    outbox: ['payload'],
    dead_letter: ['body'],
    inbox_message: ['body'],
    inbox_archive: ['body'],
    transport_message: ['body'],
    command_marker: ['principal', 'request_id', 'response', 'token', 'fingerprint'],
    blob_part: ['bytes'],
    inbox: ['content_hash'],
    outbox_source: ['content_hash'],
  }
  for (const [table, columns] of Object.entries(hidden)) {
    for (const privilege of tableGrants[table]?.readonly ?? []) {
      expect(privilege).toMatch(/^select \(/)
      for (const column of columns) expect(privilege.slice(8, -1).split(', ')).not.toContain(column)
    }
  }
})
