// What the guest's firmware tells of its CPUs: frequencies that can be chosen (ACPI 6.5, 8.4.5), so that cpufreq has
// governors there. The register of a frequency is pc-testdev's at port 0xe0, which reads back what was written.
DefinitionBlock ("", "SSDT", 2, "LINERT", "CPUS", 1) {
    External (\_SB.CPUS.C000, DeviceObj)
    External (\_SB.CPUS.C001, DeviceObj)
    External (\_SB.CPUS.C002, DeviceObj)
    External (\_SB.CPUS.C003, DeviceObj)

    // Where the frequency is chosen, and where it is read.
    Name (\PCTL, Package () {
        ResourceTemplate () { Register (SystemIO, 32, 0, 0xE0, 3) },
        ResourceTemplate () { Register (SystemIO, 32, 0, 0xE0, 3) }
    })
    // MHz, mW, two latencies in us, what is written for it, and what is read then.
    Name (\PSTA, Package () {
        Package () { 3000, 60000, 10, 10, 0x30, 0x30 },
        Package () { 2000, 40000, 10, 10, 0x20, 0x20 },
        Package () { 1000, 20000, 10, 10, 0x10, 0x10 }
    })

    // Each CPU by itself: a domain of one, which it coordinates in software (0xFD).
    Scope (\_SB.CPUS.C000) {
        Method (_PCT) { Return (\PCTL) }
        Method (_PSS) { Return (\PSTA) }
        Name (_PPC, 0)
        Name (_PSD, Package () { Package () { 5, 0, 0, 0xFD, 1 } })
    }
    Scope (\_SB.CPUS.C001) {
        Method (_PCT) { Return (\PCTL) }
        Method (_PSS) { Return (\PSTA) }
        Name (_PPC, 0)
        Name (_PSD, Package () { Package () { 5, 0, 1, 0xFD, 1 } })
    }
    Scope (\_SB.CPUS.C002) {
        Method (_PCT) { Return (\PCTL) }
        Method (_PSS) { Return (\PSTA) }
        Name (_PPC, 0)
        Name (_PSD, Package () { Package () { 5, 0, 2, 0xFD, 1 } })
    }
    Scope (\_SB.CPUS.C003) {
        Method (_PCT) { Return (\PCTL) }
        Method (_PSS) { Return (\PSTA) }
        Name (_PPC, 0)
        Name (_PSD, Package () { Package () { 5, 0, 3, 0xFD, 1 } })
    }
}
