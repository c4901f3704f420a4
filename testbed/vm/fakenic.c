// SPDX-License-Identifier: GPL-2.0
/*
 * fake0: an interface for tests that takes settings which no card that QEMU emulates takes, and only remembers them:
 * moderation of single queues, energy-efficient Ethernet, forward error correction, forced speeds, data centre bridging,
 * maximum rates of traffic classes with queues (mqprio, hw 1).
 * It counts the bytes of each VLAN priority (tx_prio0_bytes ...), as mlx5 does, and drops every packet. What netlink and ethtool make of a request is the kernel's own code; only the card is missing.
 *
 * Written for Linux 6.1 (include/linux/ethtool.h, include/net/dcbnl.h there), a module of the guest's kernel and no part
 * of any program.
 */
#include <linux/etherdevice.h>
#include <linux/ethtool.h>
#include <linux/if_vlan.h>
#include <linux/linkmode.h>
#include <linux/module.h>
#include <net/dcbnl.h>
#include <net/pkt_cls.h>

#define QUEUES 4
#define PRIORITIES 8

static struct net_device *nic;

static struct {
	struct ethtool_coalesce coalesce[QUEUES];
	struct ethtool_link_ksettings link;
	bool eee;
	u32 fec;
	struct ieee_ets ets;
	struct ieee_pfc pfc;
	struct ieee_maxrate maxrate;
	u64 class_maxrate[TC_QOPT_MAX_QUEUE];
	atomic64_t sent_bytes[PRIORITIES];
} card;

/* In /sys/module/fakenic/parameters, as iproute2's dcb took the kernel's kbit/s for bytes/s for years. */
module_param_array_named(maxrate_kbit, card.maxrate.tc_maxrate, ullong, NULL, 0444);
/* Bytes per second, as the kernel passes them on. */
module_param_array_named(class_maxrate, card.class_maxrate, ullong, NULL, 0444);

static netdev_tx_t transmit(struct sk_buff *packet, struct net_device *dev)
{
	struct vlan_ethhdr *header = (struct vlan_ethhdr *)packet->data;
	unsigned int priority = 0;

	/* The tag is in the frame: this card does not offer to insert it. */
	if (packet->len >= VLAN_ETH_HLEN && header->h_vlan_proto == htons(ETH_P_8021Q))
		priority = ntohs(header->h_vlan_TCI) >> VLAN_PRIO_SHIFT;
	atomic64_add(packet->len, &card.sent_bytes[priority]);
	dev_kfree_skb(packet);
	return NETDEV_TX_OK;
}

/* As i40e does (i40e_setup_tc): channels with maximum rates, and no minimum ones. */
static int setup_tc(struct net_device *dev, enum tc_setup_type type, void *data)
{
	struct tc_mqprio_qopt_offload *asked = data;
	struct tc_mqprio_qopt *classes = &asked->qopt;
	int class, priority;

	if (type != TC_SETUP_QDISC_MQPRIO)
		return -EOPNOTSUPP;
	if (!classes->num_tc) {
		memset(card.class_maxrate, 0, sizeof(card.class_maxrate));
		netdev_reset_tc(dev);
		return 0;
	}
	if (asked->mode != TC_MQPRIO_MODE_CHANNEL || asked->shaper != TC_MQPRIO_SHAPER_BW_RATE)
		return -EOPNOTSUPP;
	if (asked->flags & TC_MQPRIO_F_MIN_RATE)
		return -EINVAL;
	netdev_set_num_tc(dev, classes->num_tc);
	for (class = 0; class < classes->num_tc; class++) {
		netdev_set_tc_queue(dev, class, classes->count[class], classes->offset[class]);
		card.class_maxrate[class] = asked->max_rate[class];
	}
	for (priority = 0; priority <= TC_BITMASK; priority++)
		netdev_set_prio_tc_map(dev, priority, classes->prio_tc_map[priority]);
	classes->hw = TC_MQPRIO_HW_OFFLOAD_TCS;
	return 0;
}

static const struct net_device_ops net_ops = {
	.ndo_start_xmit = transmit,
	.ndo_setup_tc = setup_tc,
};

static void get_channels(struct net_device *dev, struct ethtool_channels *told)
{
	told->max_combined = QUEUES;
	told->combined_count = QUEUES;
}

static int get_queue(struct net_device *dev, u32 queue, struct ethtool_coalesce *told)
{
	if (queue >= QUEUES)
		return -EINVAL;
	*told = card.coalesce[queue];
	return 0;
}

static int set_queue(struct net_device *dev, u32 queue, struct ethtool_coalesce *told)
{
	if (queue >= QUEUES)
		return -EINVAL;
	card.coalesce[queue] = *told;
	return 0;
}

static int get_coalesce(struct net_device *dev, struct ethtool_coalesce *told,
			struct kernel_ethtool_coalesce *more, struct netlink_ext_ack *ack)
{
	return get_queue(dev, 0, told);
}

/* As cards do: what is set for all is set for each. */
static int set_coalesce(struct net_device *dev, struct ethtool_coalesce *told,
			struct kernel_ethtool_coalesce *more, struct netlink_ext_ack *ack)
{
	u32 queue;

	for (queue = 0; queue < QUEUES; queue++)
		set_queue(dev, queue, told);
	return 0;
}

static int get_link(struct net_device *dev, struct ethtool_link_ksettings *told)
{
	*told = card.link;
	return 0;
}

static int set_link(struct net_device *dev, const struct ethtool_link_ksettings *told)
{
	card.link.base.autoneg = told->base.autoneg;
	linkmode_copy(card.link.link_modes.advertising, told->link_modes.advertising);
	if (told->base.autoneg == AUTONEG_DISABLE) {
		card.link.base.speed = told->base.speed;
		card.link.base.duplex = told->base.duplex;
	} else {
		card.link.base.speed = SPEED_25000;
		card.link.base.duplex = DUPLEX_FULL;
	}
	return 0;
}

static int get_eee(struct net_device *dev, struct ethtool_eee *told)
{
	told->supported = SUPPORTED_1000baseT_Full;
	told->advertised = SUPPORTED_1000baseT_Full;
	told->eee_enabled = card.eee;
	return 0;
}

static int set_eee(struct net_device *dev, struct ethtool_eee *told)
{
	card.eee = told->eee_enabled;
	return 0;
}

static int get_fec(struct net_device *dev, struct ethtool_fecparam *told)
{
	told->fec = card.fec;
	told->active_fec = card.fec & ETHTOOL_FEC_RS ? ETHTOOL_FEC_RS : ETHTOOL_FEC_OFF;
	return 0;
}

static int set_fec(struct net_device *dev, struct ethtool_fecparam *told)
{
	card.fec = told->fec;
	return 0;
}

static int get_count(struct net_device *dev, int set)
{
	return set == ETH_SS_STATS ? PRIORITIES : -EOPNOTSUPP;
}

static void get_names(struct net_device *dev, u32 set, u8 *names)
{
	unsigned int priority;

	if (set == ETH_SS_STATS)
		for (priority = 0; priority < PRIORITIES; priority++)
			ethtool_sprintf(&names, "tx_prio%u_bytes", priority);
}

static void get_counters(struct net_device *dev, struct ethtool_stats *told, u64 *values)
{
	unsigned int priority;

	for (priority = 0; priority < PRIORITIES; priority++)
		values[priority] = atomic64_read(&card.sent_bytes[priority]);
}

static const struct ethtool_ops ethtool_ops = {
	.supported_coalesce_params = ETHTOOL_COALESCE_USECS | ETHTOOL_COALESCE_MAX_FRAMES |
		ETHTOOL_COALESCE_USE_ADAPTIVE,
	.get_sset_count = get_count,
	.get_strings = get_names,
	.get_ethtool_stats = get_counters,
	.get_channels = get_channels,
	.get_coalesce = get_coalesce,
	.set_coalesce = set_coalesce,
	.get_per_queue_coalesce = get_queue,
	.set_per_queue_coalesce = set_queue,
	.get_link = ethtool_op_get_link,
	.get_link_ksettings = get_link,
	.set_link_ksettings = set_link,
	.get_eee = get_eee,
	.set_eee = set_eee,
	.get_fecparam = get_fec,
	.set_fecparam = set_fec,
};

static int get_ets(struct net_device *dev, struct ieee_ets *told)
{
	*told = card.ets;
	return 0;
}

/* As mlx5 does (mlx5e_dbcnl_validate_ets): shares are shares of the whole. */
static int set_ets(struct net_device *dev, struct ieee_ets *told)
{
	int class, shares = 0;
	bool shared = false;

	for (class = 0; class < IEEE_8021QAZ_MAX_TCS; class++) {
		if (told->tc_tsa[class] != IEEE_8021QAZ_TSA_ETS)
			continue;
		shared = true;
		shares += told->tc_tx_bw[class];
	}
	if (shared && shares != 100)
		return -EINVAL;
	card.ets = *told;
	return 0;
}

static int get_pfc(struct net_device *dev, struct ieee_pfc *told)
{
	*told = card.pfc;
	return 0;
}

static int set_pfc(struct net_device *dev, struct ieee_pfc *told)
{
	card.pfc = *told;
	return 0;
}

static int get_maxrate(struct net_device *dev, struct ieee_maxrate *told)
{
	*told = card.maxrate;
	return 0;
}

static int set_maxrate(struct net_device *dev, struct ieee_maxrate *told)
{
	card.maxrate = *told;
	return 0;
}

static u8 get_dcbx(struct net_device *dev)
{
	return DCB_CAP_DCBX_HOST | DCB_CAP_DCBX_VER_IEEE;
}

/* The table of applications is the kernel's own. */
static const struct dcbnl_rtnl_ops dcb_ops = {
	.ieee_getets = get_ets,
	.ieee_setets = set_ets,
	.ieee_getpfc = get_pfc,
	.ieee_setpfc = set_pfc,
	.ieee_getmaxrate = get_maxrate,
	.ieee_setmaxrate = set_maxrate,
	.getdcbx = get_dcbx,
};

static void __init power_up(void)
{
	struct ethtool_link_ksettings *link = &card.link;

	ethtool_link_ksettings_add_link_mode(link, supported, 1000baseT_Full);
	ethtool_link_ksettings_add_link_mode(link, supported, 10000baseT_Full);
	ethtool_link_ksettings_add_link_mode(link, supported, 25000baseCR_Full);
	ethtool_link_ksettings_add_link_mode(link, supported, Autoneg);
	linkmode_copy(link->link_modes.advertising, link->link_modes.supported);
	link->base.autoneg = AUTONEG_ENABLE;
	link->base.speed = SPEED_25000;
	link->base.duplex = DUPLEX_FULL;
	card.fec = ETHTOOL_FEC_RS | ETHTOOL_FEC_BASER;
	card.ets.ets_cap = IEEE_8021QAZ_MAX_TCS;
	card.pfc.pfc_cap = IEEE_8021QAZ_MAX_TCS;
}

static int __init plug_in(void)
{
	int error;

	nic = alloc_etherdev_mqs(0, QUEUES, QUEUES);
	if (!nic)
		return -ENOMEM;
	power_up();
	strscpy(nic->name, "fake0", IFNAMSIZ);
	eth_hw_addr_random(nic);
	nic->netdev_ops = &net_ops;
	nic->ethtool_ops = &ethtool_ops;
	nic->dcbnl_ops = &dcb_ops;
	error = register_netdev(nic);
	if (error)
		free_netdev(nic);
	return error;
}

static void __exit pull_out(void)
{
	unregister_netdev(nic);
	free_netdev(nic);
}

module_init(plug_in);
module_exit(pull_out);
MODULE_DESCRIPTION("An interface that remembers its settings");
MODULE_LICENSE("GPL");
